"""What is pruned from a corpus, and what never is."""

from schedproof.gate.corpus.checks import prune
from schedproof.gate.corpus.folder import entries
from schedproof.gate.corpus.replay import expecting, judge, rules_for
from schedproof.model.faults import TargetBroken
from schedproof.model.target import ModelTarget

from ..corpus_build import calm, crowd, kept


class Fixed(ModelTarget):
    """Never more sequences than may run: it lets no other request in."""

    def add(self, request):
        if request["id"] not in ("r0", "r1"):
            return {"ok": False, "error": "rejected", "message": "full"}
        return super().add(request)


class Stranger(ModelTarget):
    """Refuses every configuration."""

    def start(self, system, revision, config):
        return {"ok": False, "error": "config", "message": "not here"}


class Babbler(ModelTarget):
    """What it says is no step."""

    def step(self):
        raise TargetBroken("step", "is no reply", "")


def pruned(folder, target, *, dry_run=False):
    """The names that are left, and what was said."""
    said: list[str] = []
    prune(entries(folder), target, said.append, dry_run=dry_run)
    return [entry.path.name for entry in entries(folder)], said


def test_of_one_failure_the_smallest_stays(tmp_path):
    small = kept(tmp_path, crowd(prompt=2), shape="the same")
    large = kept(tmp_path, crowd(prompt=9), shape="the same")
    left, said = pruned(tmp_path, Fixed(), dry_run=True)
    assert len(left) == 2
    assert f"{large}: the same failure as {small}, which is not larger: would be removed" in said
    assert pruned(tmp_path, Fixed())[0] == [small.name]


def test_what_still_breaks_is_never_removed(tmp_path):
    for prompt in (2, 9):
        kept(tmp_path, crowd(prompt=prompt), shape="the same")
    left, said = pruned(tmp_path, ModelTarget())
    assert len(left) == 2
    assert any("but it still breaks: kept" in line for line in said)


def test_witnesses_are_no_duplicates_of_each_other(tmp_path):
    kept(tmp_path, calm())
    kept(tmp_path, crowd(prompt=2, requests=1))
    assert len(pruned(tmp_path, ModelTarget())[0]) == 2


def test_of_the_same_content_the_one_with_its_own_name_stays(tmp_path):
    path = kept(tmp_path, calm(), rule="NAN-R14")
    (tmp_path / "a-copy.json").write_text(path.read_text())
    assert pruned(tmp_path, ModelTarget())[0] == [path.name]


def test_what_the_model_refuses_goes_and_what_only_the_target_refuses_stays(tmp_path):
    path = kept(tmp_path, calm(), rule="NAN-R14")
    kept(tmp_path, crowd(prompt=900, requests=1), rule="NAN-R14")
    left, said = pruned(tmp_path, Stranger())
    assert left == [path.name]
    assert any("replays no more: the target refuses every request" in line for line in said)


def judged(target, scenario, rule="NAN-R14"):
    return judge(target, scenario, rule, rules_for(scenario))


def test_how_a_replay_compares_with_its_expectation():
    assert judged(ModelTarget(), crowd()).status == "NOT AS EXPECTED"
    assert judged(Fixed(), crowd()).status == "as expected"
    assert judged(Stranger(), crowd()).why == "the target refuses the configuration: not here"
    assert judged(Stranger(), crowd()).status == "not exercised"
    assert judged(Babbler(), crowd()).status == "inconclusive"


def test_a_rule_that_was_to_break_and_holds_is_not_as_expected():
    known = expecting(crowd(), ["NAN-R40"])
    assert judged(ModelTarget(), known).status == "as expected"
    reported = judged(Fixed(), known)
    assert (reported.status, reported.why) == ("NOT AS EXPECTED", "no rule broke, expected NAN-R40")
