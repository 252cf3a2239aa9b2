"""The table of times to find."""

from schedproof.tools.mutation import times


def test_what_was_not_found_is_later_than_whatever_was():
    trials = [{"gate": times.Took(True, second, 10 * second)} for second in range(1, 20)]
    trials.append({"gate": times.Took(False, 0.5, 7)})
    [row] = times.rows("all", trials)
    assert row == "| all | gate | 20 | 19 (95.0%) | 10.000 s | 19.000 s | 105 |"
    [row] = times.rows("all", [*trials, *trials[-1:]])
    assert row.split(" | ")[4:6] == ["11.000 s", "> 0.500 s"]


def test_where_most_are_not_found_no_steps_are_told():
    [row] = times.rows("all", [{"plain": times.Took(False, 9.0, 3)}])
    assert row == "| all | plain | 1 | 0 (0.0%) | > 9.000 s | > 9.000 s | not found |"
