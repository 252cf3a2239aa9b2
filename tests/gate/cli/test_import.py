"""`schedproof import`: what a scenario has of a recorded load, and one line where it has none.

Every number in these loads is invented.
"""

import json
from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.properties.history.content import common_prefix_len

pytestmark = pytest.mark.usefixtures("working_folder")

MOONCAKE = [
    {"timestamp": 0, "input_length": 1300, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 40, "input_length": 1500, "output_length": 3, "hash_ids": [0, 1, 3]},
    {"timestamp": 41, "input_length": 600, "output_length": 2, "hash_ids": [7, 8]},
    {"timestamp": 90, "input_length": 2000, "output_length": 9, "hash_ids": [0, 1, 2, 4]},
]
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:17:03.9799600,480,10\r
2023-11-16 18:17:04.0319600,31,8\r
2023-11-16 18:17:05.9799600,110,27\r
"""
BURSTGPT = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,1,2,Chat,472,18,490,Conversation log
5.5,2,2,Chat,87,3,90,API log
"""


def mooncake(rows=MOONCAKE, name="trace.jsonl"):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def written(name, text):
    Path(name).write_text(text, newline="")
    return name


def requests(name="trace.json"):
    return {request.id: request for request in read_scenario(Path(name)).requests}


def alike(first, second):
    """The tokens that two prompts begin with alike."""
    return common_prefix_len(first.prompt, second.prompt)


def test_rows_of_mooncake_arrive_in_their_steps_with_their_lengths(run):
    assert run("import", "mooncake", mooncake()).code == 0
    made = requests()
    assert [request.arrival for request in made.values()] == [0, 2, 2, 4]
    assert [request.prompt_len for request in made.values()] == [1300, 1500, 600, 2000]
    assert [request.tokens_to_emit for request in made.values()] == [5, 3, 2, 9]


def test_a_file_that_the_user_did_not_name_is_overwritten_only_if_it_is_a_scenario(run):
    Path("trace.json").write_text('{"mine": 1}')
    result = run("import", "mooncake", mooncake())
    assert "--out: trace.json exists and is no scenario of schedproof; valid: " in result.err
    assert (result.code, Path("trace.json").read_text()) == (2, '{"mine": 1}')
    assert run("import", "mooncake", mooncake(), "--out", "trace.json").code == 0
    assert run("import", "mooncake", mooncake()).code == 0


def test_prompts_are_alike_as_far_as_their_hashes_are(run):
    run("import", "mooncake", mooncake())
    made = requests()
    assert alike(made["r1"], made["r2"]) == 1024
    assert alike(made["r1"], made["r4"]) == 1300
    assert alike(made["r2"], made["r4"]) == 1024
    assert alike(made["r1"], made["r3"]) == 0


def test_hashes_that_always_follow_each_other_are_one_segment(run):
    run("import", "mooncake", mooncake())
    assert [segment[0] for segment in requests()["r4"].prompt] == ["h0", "h2"]


def test_what_is_taken_and_what_is_not_is_said(run):
    rows = [{**row, "session_id": 3} for row in MOONCAKE]
    result = run("import", "mooncake", mooncake(rows), "--from", "2", "--requests", "2", "-o", "a")
    assert result.out.splitlines() == [
        "rows from 4 on are left out (--requests)",
        "fields that a scenario cannot express: session_id",
        "a: 2 requests",
        "  2,100 prompt tokens, 0 of them shared with an earlier prompt",
        "  5 tokens generated, arrivals in steps 0 to 0",
    ]
    assert [*requests("a")] == ["r2", "r3"]
    assert run("import", "mooncake", mooncake(), "--requests", f"{2**63}").code == 0


def test_the_origin_says_where_the_load_is_from(run):
    run("import", "mooncake", mooncake(), "--step-ms", "50")
    note = "mooncake, rows 1 to 4 of trace.jsonl, 50 ms per step"
    assert (read_scenario(Path("trace.json")).origin or {})["note"] == note


def test_dates_of_azure_are_times_between_arrivals(run):
    assert run("import", "azure", written("a.csv", AZURE), "--system", "spyre").code == 0
    made = requests("a.json").values()
    assert [(r.arrival, r.prompt_len, r.max_tokens) for r in made] == [
        (0, 480, 10),
        (2, 31, 8),
        (100, 110, 27),
    ]
    assert len({request.prompt[0][0] for request in made}) == 3


def test_columns_of_burstgpt_are_found_by_name(run):
    assert run("import", "burstgpt", written("b.csv", BURSTGPT)).code == 0
    made = requests("b.json").values()
    assert [(r.arrival, r.prompt_len, r.max_tokens) for r in made] == [(0, 472, 18), (25, 87, 3)]


def test_rows_that_are_out_of_order_arrive_in_order_and_it_says_so(run):
    words = "the rows are not in order of arrival; the scenario sorts them by their times"
    assert words not in run("import", "mooncake", mooncake(MOONCAKE)).out
    assert words in run("import", "mooncake", mooncake([MOONCAKE[1], MOONCAKE[0]])).out
    assert [(r.id, r.arrival) for r in requests().values()] == [("r2", 0), ("r1", 2)]


def test_rows_that_cannot_run_are_refused_and_left_out_only_where_that_is_wanted(run):
    rows = [*MOONCAKE, {**MOONCAKE[2], "output_length": 0}]
    words = ("import", "mooncake", mooncake(rows), "--config", "max_model_len=1400")
    run(*words).refused(
        "trace.jsonl: row 2: prompt + max_tokens = 1503 tokens exceeds max_model_len (1400), "
        "and 2 more of 5 rows cannot run; valid: --config with larger limits, or --skip-unfit"
    )
    assert not Path("trace.json").exists()
    result = run(*words, "--skip-unfit")
    assert result.out.splitlines()[1:5] == [
        "3 of 5 rows cannot run and are left out:",
        "  row 2: prompt + max_tokens = 1503 tokens exceeds max_model_len (1400)",
        "  row 5: 600 prompt tokens, 0 generated",
        "  row 4: prompt + max_tokens = 2009 tokens exceeds max_model_len (1400)",
    ]
    assert [*requests()] == ["r1", "r3"]


def test_the_scenario_replays_and_finds_what_earlier_prompts_computed(run):
    run("import", "mooncake", mooncake())
    result = run("replay", "trace.json", "--trace", "run.jsonl", "--quiet")
    assert (result.code, result.err) == (0, "")
    hits = [
        json.loads(line)["step"]["prefix_hit"]
        for line in Path("run.jsonl").read_text().splitlines()
        if '"prefix_hit": {"r4"' in line
    ]
    assert hits[0] == {"r4": 1296}  # whole blocks of 16 tokens


def test_a_load_goes_into_a_corpus_as_a_witness(run):
    run("import", "mooncake", mooncake())
    added = run("corpus", "add", "trace.json", "--rule", "ALL-R02")
    assert added.code == 0
    assert run("corpus", "run").code == 0


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('{"timestamp": 0, "input_length": -3}', "$.input_length: -3: Expected `int` >= 0"),
        ('{"timestamp": 0, "input_length": "3"}', '$.input_length: "3": Expected `int`, got `str`'),
        ('{"input_length": 3, "output_length": 3}', "Object missing required field `timestamp`"),
        ("[1]", "$: [1]: Expected `object`, got `array`"),
        ("{", "not JSON: "),
        ('{"timestamp": 1e999, "input_length": 3, "output_length": 3}', "$.timestamp: inf; valid"),
        ('{"timestamp": 0, "timestamp": 0}', "not JSON: key 'timestamp' is given twice"),
        ('"\\ud800"', "$: "),
        ('["\\ud800"]', "$: "),
        ('{"timestamp": "\\ud800"}', r"not JSON: '\ud800' is not Unicode text"),
        (
            json.dumps({**MOONCAKE[0], "hash_ids": [1]}),
            "$.hash_ids: 1 ids; valid: 3, one per 512 tokens of input_length 1300",
        ),
    ],
)
def test_a_wrong_row_of_mooncake_is_one_line_with_its_field(run, row, problem):
    Path("t.jsonl").write_text(f"{json.dumps(MOONCAKE[0])}\n{row}\n")
    result = run("import", "mooncake", "t.jsonl")
    result.refused("t.jsonl: line 2: ")
    assert problem in result.err


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("azure", "a,b\n1,2\n", "line 1: column TIMESTAMP: missing in the header 'a, b'; valid: o"),
        ("azure", AZURE.replace("480", "-1"), 'line 2: ContextTokens: "-1"; valid: a number of'),
        ("azure", AZURE.replace("2023-", ""), 'line 2: TIMESTAMP: "11-16 18:17:03.9799600"; val'),
        ("azure", AZURE.replace(",480", ""), "line 2: 2 fields; valid: 3, TIMESTAMP, ContextTok"),
        (
            "azure",
            AZURE.splitlines()[0],
            "the file ends before row 1; valid: --from ROW, with a row that",
        ),
        ("azure", AZURE.replace("480", '"480'), "not CSV: unexpected end of data"),
        ("burstgpt", BURSTGPT.replace("5.5", "nan"), "line 3: Timestamp: nan; valid: a finite nu"),
        ("burstgpt", "", "line 0: column Timestamp: missing in the header ''; valid: once"),
    ],
)
def test_a_wrong_table_is_one_line_with_its_column(run, form, text, problem):
    result = run("import", form, written("t.csv", text))
    result.refused("t.csv: ")
    assert problem in result.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("import", "sharegpt", "trace.jsonl"), "FORM: 'sharegpt'; valid: mooncake, azure, b"),
        (("import", "mooncake", "."), ".: cannot be read (Is a directory)"),
        (("import", "mooncake", "none"), "none: cannot be read (No such file or directory)"),
        (("import", "mooncake", "trace.jsonl", "--requests", "0"), "--requests: 0; valid: at l"),
        (
            ("import", "mooncake", "trace.jsonl", "--from", "9"),
            "trace.jsonl: the file ends before row 9",
        ),
        (("import", "mooncake", "trace.jsonl", "-o", "trace.jsonl"), "--out: trace.jsonl is the "),
        (("import", "mooncake", "trace.jsonl", "--config", "x=1"), "--config: 'x=1'; valid: KEY"),
        (("import", "mooncake", "trace.jsonl", "--system", "x"), "--system: 'x' is not a system"),
        (
            ("import", "mooncake", "trace.jsonl", "--step-ms", "0.001"),
            "--step-ms: row 4 would arrive more than 10,000,000 steps after row 1; valid: longer",
        ),
    ],
)
def test_an_option_that_means_nothing_is_one_line(run, words, problem):
    mooncake([*MOONCAKE[:3], {**MOONCAKE[3], "timestamp": 90_000}])
    run(*words).refused(problem)


def test_a_time_that_no_step_can_have_is_one_line(run):
    mooncake([MOONCAKE[0], {**MOONCAKE[1], "timestamp": 1e308}])
    problem = "--step-ms: row 2 would arrive more than 10,000,000 steps after row 1; valid: longer"
    run("import", "mooncake", "trace.jsonl", "--step-ms", "0.001").refused(problem)
    early, late = BURSTGPT.replace("5,1", "-1e305,1"), BURSTGPT.replace("5.5", "1e305")
    for text in (early, late, early.replace("5.5", "1e305")):
        run("import", "burstgpt", written("t.csv", text)).refused("--step-ms: row 2 would arrive")


def test_a_prompt_shares_no_more_tokens_than_an_earlier_prompt_has(run):
    rows = [{**MOONCAKE[0], "input_length": length} for length in (1030, 1025, 1536)]
    out = run("import", "mooncake", mooncake(rows)).out
    assert "3,591 prompt tokens, 2,055 of them shared with an earlier prompt" in out


@pytest.mark.parametrize(
    ("hashes", "shared"), [([[1, 2], [2, 3]], 0), ([[1, 2], [2, 2]], 0), ([[1, 2], [1, 3]], 512)]
)
def test_a_hash_in_another_place_is_no_shared_prefix(run, hashes, shared):
    rows = [
        {"timestamp": 0, "input_length": 1024, "output_length": 2, "hash_ids": ids}
        for ids in hashes
    ]
    written("t.jsonl", "\n".join(map(json.dumps, rows)))
    result = run("import", "mooncake", "t.jsonl", "-o", "s.json")
    assert result.code == 0, result
    assert f" {shared} of them shared" in result.out
