import re
import subprocess
import sys
import zipfile
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest
from msgspec.structs import replace

from schedproof.spec import catalogue
from schedproof.spec.catalogue import CatalogueError, Divergence, Rule
from schedproof.spec.systems import SYSTEMS

# In file order, which is the order in which broken rules are named.
ROOT = Path(__file__).resolve().parents[2]
COMMON = [
    *("ALL-R01", "ALL-R02", "ALL-R03", "ALL-R04", "ALL-R05", "ALL-R06", "ALL-R08", "ALL-R09"),
    *("ALL-R10", "ALL-R11", "ALL-R12", "ALL-R13", "ALL-R07"),
]
CHECKED = [
    *("SPY-R30", "SPY-R13", "SPY-R52", "SPY-R31", "SPY-R32", "SPY-R34", "SPY-R53", "SPY-R36"),
    "SPY-R38",
    *(
        "SPY-R55",
        "SPY-R54",
        "SPY-R57",
        "SPY-R60",
        "SPY-R63",
        "SPY-R04",
        "SPY-R19",
        "SPY-R14",
        "SPY-R16",
    ),
    *("SPY-R11", "SPY-R56", "SPY-R20", "SPY-R59", "SPY-R41", "SPY-R50", "SPY-P02", "SPY-R51"),
    *("SPY-P01", "SPY-R22", "SPY-R02", "SPY-R09", "SPY-R24", "SPY-R10", "SPY-R26", "SPY-R07"),
    *("SPY-R42", "SPY-R47", "SPY-R35", "SPY-R33"),
]
ROWS = [f"SPY-R{number:02}" for number in range(1, 64)]
PROMISES = ["SPY-P01", "SPY-P02"]
UNCHECKED = [row for row in ROWS if row not in CHECKED]
# What nothing else can show: what is no decision at all.
NOTHING_STANDS_IN = ["SPY-R03"]
# Where document and code disagree, or agree only under a condition.
DIVERGING = [
    *("ALL-R01", "ALL-R08", "ALL-R10", "ALL-R11", "SPY-P02"),
    *("SPY-R07", "SPY-R08", "SPY-R11", "SPY-R12", "SPY-R19", "SPY-R22", "SPY-R32", "SPY-R35"),
    *(
        "SPY-R36",
        "SPY-R38",
        "SPY-R39",
        "SPY-R41",
        "SPY-R42",
        "SPY-R43",
        "SPY-R44",
        "SPY-R45",
        "SPY-R46",
        "SPY-R47",
    ),
    *("SPY-R53", "SPY-R57", "SPY-R59", "SPY-R62"),
]
# The optional fields of a step, as the target protocol lists them.
PROTOCOL_FIELDS = {
    *("emitted", "tkv", "left_pad_blocks", "waiting", "running", "prefilling", "paused"),
    *("preempted", "finished", "computed", "prefix_hit", "blocks", "free_blocks"),
    *("reserved_blocks", "slot_blocks", "prompt_throughput", "decode_throughput", "emitted_at"),
    "parked",
    "encoder_inputs",
    "encoder_dropped",
    "group_blocks",
    "group_free_blocks",
    "sent",
    "completes",
    *("deferred", "handed_over", "over", "cache_events", "masks", "grammars"),
}

GOOD = """
[[rule]]
id = "TST-R01"
title = "a title"
statement = "Something holds."
source = "a document, a section"
kind = "safety"
revisions = ["*"]
needs = ["tkv"]
witness = "Something happens."
engines = ["corpus"]

[[rule.divergence]]
releases = "1.0"
statement = "It does not hold."
"""


@pytest.fixture(scope="module")
def rules():
    return catalogue.load("spyre")


def ids(rules):
    return [rule.id for rule in rules]


def fault(text):
    with pytest.raises(CatalogueError) as caught:
        catalogue.read(text, "bad.toml")
    return str(caught.value)


def test_every_row_of_the_spyre_table_and_every_promise_is_a_rule(rules):
    assert sorted(ids(rules)) == sorted(COMMON) + sorted(PROMISES + ROWS)


def test_no_rule_id_is_used_twice_over_both_files(rules):
    assert {rule: times for rule, times in Counter(ids(rules)).items() if times > 1} == {}


def test_common_rules_come_first_then_checked_ones_then_the_others_by_number(rules):
    assert ids(rules) == COMMON + CHECKED + UNCHECKED


def test_rules_are_checked_or_unchecked_for_a_reason_and_none_is_planned(rules):
    assert [rule.id for rule in rules if rule.checked] == COMMON + CHECKED
    assert [rule.id for rule in rules if rule.unchecked] == UNCHECKED
    assert catalogue.planned(rules) == ()
    assert (len(COMMON + CHECKED), len(UNCHECKED)) == (51, 27)


def test_every_checked_rule_has_a_witness_and_is_sampled_and_no_other_has_an_engine(rules):
    for rule in rules:
        if rule.checked:
            assert rule.witness, rule.id
            assert rule.engines[:2] == ("hypothesis", "corpus"), rule.id
        else:
            assert rule.engines == (), rule.id


def test_who_stands_in_for_a_rule_is_checked_wherever_that_rule_applies(rules):
    by_id = {rule.id: rule for rule in rules}
    for rule in rules:
        others = [by_id[name] for name in rule.stands_in]
        assert [other.id for other in others if not other.checked] == [], rule.id
        assert len(set(rule.stands_in)) == len(rule.stands_in), rule.id
        for revision in SYSTEMS["spyre"].revisions if others else ():
            if {"*", revision} & set(rule.revisions):
                covering = [o.id for o in others if {"*", revision} & set(o.revisions)]
                assert covering, f"{rule.id} has no request in its place in revision {revision}"


def test_only_what_no_run_can_show_has_nobody_in_its_place(rules):
    alone = [rule.id for rule in rules if rule.unchecked and not rule.stands_in]
    assert alone == NOTHING_STANDS_IN


def test_every_need_is_an_optional_field_of_the_protocol(rules):
    assert set(catalogue.FIELDS) == PROTOCOL_FIELDS
    assert set().union(*(rule.needs for rule in rules)) <= PROTOCOL_FIELDS | {"defaults"}


def test_divergences_are_known_of_exactly_these_rules(rules):
    assert sorted(rule.id for rule in rules if rule.divergences) == DIVERGING


@pytest.mark.parametrize("rule_id", DIVERGING)
def test_both_sides_are_kept_where_document_and_code_disagree(rules, rule_id):
    (rule,) = catalogue.select(rules, [rule_id])
    assert rule.divergences
    assert all(row.statement != rule.statement for row in rule.divergences)


def test_every_sentence_ends_as_a_sentence(rules):
    for rule in rules:
        sentences = [rule.statement, rule.witness or ".", rule.unchecked or "."]
        assert all(sentence.endswith(".") for sentence in sentences), rule.id
        assert all(row.statement.endswith(".") for row in rule.divergences), rule.id


def test_no_sentence_stands_in_the_catalogue_for_two_rules(rules):
    for words in ([rule.statement for rule in rules], [rule.title for rule in rules]):
        assert [sentence for sentence, times in Counter(words).items() if times > 1] == []


def test_decisions_are_compared_only_with_the_releases_that_have_a_model(rules):
    (lockstep,) = catalogue.select(rules, ["ALL-R07"])
    assert (lockstep.kind, lockstep.revisions) == ("decision", ("2.1.2", "2.5.2"))


def test_rules_cited_by_a_rule_exist(rules):
    known = set(ids(rules))
    for rule in rules:
        text = " ".join(
            [rule.statement, rule.unchecked, *(row.statement for row in rule.divergences)]
        )
        cited = {*re.findall(r"[A-Z]+-[RP][0-9]+", text)}
        assert cited <= known - {rule.id}, rule.id


def test_a_rule_keeps_what_its_table_says():
    assert catalogue.read(GOOD, "good.toml") == (
        Rule(
            id="TST-R01",
            title="a title",
            statement="Something holds.",
            source="a document, a section",
            kind="safety",
            revisions=("*",),
            needs=("tkv",),
            witness="Something happens.",
            engines=("corpus",),
            planned="",
            divergences=(Divergence("1.0", "It does not hold."),),
        ),
    )


def test_a_rule_cannot_be_changed(rules):
    with pytest.raises(AttributeError):
        rules[0].id = "ALL-R99"


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('kind = "safety"', 'kind = "safty"', ["rule[0].kind", "'safty'", "safety, progress"]),
        ('kind = "safety"', "kind = 3", ["rule[0].kind", "is 3", "Expected `str`"]),
        ('kind = "safety"', "", ["rule[0].kind", "missing", "valid keys: id, title"]),
        ('kind = "safety"', 'sort = "x"\nkind = "safety"', ["rule[0].sort", "'x'", "valid keys"]),
        ("TST-R01", "TST-R1", ["rule[0].id", "'TST-R1'", "'SPY-R09'"]),
        ("TST-R01", "tst-R01", ["rule[0].id", "'tst-R01'", "'SPY-R09'"]),
        ("TST-R01", "TST-Q01", ["rule[0].id", "'TST-Q01'", "'-R' or '-P'"]),
        ("TST-R01", "TST-P001", ["rule[0].id", "'TST-P001'", "'-R' or '-P'"]),
        ("a title", " ", ["rule[0].title", "' '", "valid: a sentence"]),
        ("Something holds.", "", ["rule[0].statement", "''", "valid: a sentence"]),
        ("a document, a section", "", ["rule[0].source", "''", "valid: a sentence"]),
        ("Something happens.", "", ["rule[0].witness", "''", "valid: a sentence"]),
        ('["*"]', '["2.1"]', ["rule[0].revisions[0]", "'2.1'", "*, sound, documented, 2.1.2"]),
        ('["*"]', '["*", "sound"]', ["rule[0].revisions[0]", "'*'", "valid: sound, documented"]),
        ('["*"]', "[]", ["rule[0].revisions", "[]", "documented"]),
        ('["*"]', '"*"', ["rule[0].revisions", "'*'", "Expected `array`"]),
        ('["tkv"]', '["tkv", "tvk"]', ["rule[0].needs[1]", "'tvk'", "emitted, tkv"]),
        ('["tkv"]', '["scheduled"]', ["rule[0].needs[0]", "'scheduled'", "emitted, tkv"]),
        ('["tkv"]', "[1]", ["rule[0].needs[0]", "is 1", "Expected `str`"]),
        ('["corpus"]', '["z4"]', ["rule[0].engines[0]", "'z4'", "z3, crosshair"]),
        ('["corpus"]', "[]", ["rule[0].engines", "[]", "hypothesis", "`planned`"]),
        ('["corpus"]', '["z3"]\nplanned = "Soon."', ["rule[0].engines", "['z3']", "planned"]),
        ('["corpus"]', '[]\nplanned = " "', ["rule[0].planned", "' '", "valid: a sentence"]),
        ('["corpus"]', "[]", ["rule[0].engines", "[]", "`unchecked`"]),
        ('["corpus"]', '["z3"]\nunchecked = "So."', ["rule[0].engines", "['z3']", "unchecked"]),
        ('["corpus"]', '[]\nunchecked = " "', ["rule[0].unchecked", "' '", "valid: a sentence"]),
        (
            '["corpus"]',
            '[]\nplanned = "Soon."\nunchecked = "So."',
            ["rule[0].unchecked", "'So.'", "absent, because the rule is planned"],
        ),
        (
            '["corpus"]',
            '["corpus"]\nstands_in = ["TST-R02"]',
            ["rule[0].stands_in", "['TST-R02']", "[], because the rule is checked"],
        ),
        ('["corpus"]', '[]\nunchecked = "So."\nstands_in = "X"', ["rule[0].stands_in", "'X'"]),
        (
            '["corpus"]',
            '[]\nreason = "because"\nunchecked = "So."',
            ["rule[0].reason", "'because'", "definition, consequence, hardware, refuted, missing"],
        ),
        (
            '["corpus"]',
            '[]\nreason = "consequence"\nunchecked = "So."',
            ["rule[0].stands_in", "[]", "valid: the rules that it follows from"],
        ),
        (
            '["corpus"]',
            '["corpus"]\nreason = "hardware"',
            ["rule[0].reason", "'hardware'", "absent, because the rule is checked"],
        ),
        (
            'releases = "1.0"',
            "",
            ["rule[0].divergence[0].releases", "missing", "releases, statement"],
        ),
        ('releases = "1.0"', 'releases = ""', ["rule[0].divergence[0].releases", "''"]),
        ('releases = "1.0"', 'releases = "1.0"\nsystem = "vlm"', ["0].system", "'vlm'", "vllm"]),
        ('"It does not hold."', '""', ["rule[0].divergence[0].statement", "''", "a sentence"]),
        ("[[rule.divergence]]", "[rule.divergence]", ["rule[0].divergence", "Expected `array`"]),
        ("[[rule]]", "[[rules]]", ["bad.toml", "rule"]),
        ("[[rule]]", "[[rule]", ["not TOML", "line 2"]),
    ],
)
def test_a_fault_is_one_line_with_file_path_value_and_what_is_valid(old, new, parts):
    assert old in GOOD
    message = fault(GOOD.replace(old, new))
    assert message.startswith("bad.toml: ")
    assert len(message.splitlines()) == 1
    assert [part for part in parts if part not in message] == []


def test_the_path_of_a_fault_counts_the_rules_before_it():
    message = fault(GOOD + GOOD.replace("TST-R01", "TST-R02").replace("safety", "maybe"))
    assert message == "bad.toml: rule[1].kind is 'maybe'; valid: safety, progress, decision"


def test_an_id_used_twice_is_refused_with_both_places():
    message = fault(GOOD + GOOD)
    assert message == "bad.toml: rule[1].id is 'TST-R01'; valid: an id that rule[0] does not have"


def test_a_planned_rule_needs_neither_witness_nor_engines():
    text = GOOD.replace('engines = ["corpus"]', 'planned = "Step 2: a model."')
    (rule,) = catalogue.read(text.replace('witness = "Something happens."', ""), "good.toml")
    assert (rule.planned, rule.witness, rule.engines) == ("Step 2: a model.", "", ())
    assert not rule.checked
    assert catalogue.planned((*catalogue.read(GOOD, "good.toml"), rule)) == (rule,)


def test_an_unchecked_rule_names_a_reason_and_may_name_who_stands_in():
    reason = 'reason = "consequence"\nunchecked = "So."\nstands_in = ["TST-R02", "TST-P01"]'
    text = GOOD.replace('engines = ["corpus"]', reason)
    (rule,) = catalogue.read(text.replace('witness = "Something happens."', ""), "good.toml")
    assert (rule.reason, rule.unchecked) == ("consequence", "So.")
    assert rule.stands_in == ("TST-R02", "TST-P01")
    assert (rule.witness, rule.engines, rule.checked) == ("", (), False)
    assert catalogue.planned((rule,)) == ()


def test_a_promise_of_progress_has_an_id_of_its_own():
    (rule,) = catalogue.read(GOOD.replace("TST-R01", "TST-P01"), "good.toml")
    assert rule.id == "TST-P01"
    assert rule.checked


@pytest.mark.parametrize(
    ("releases", "inside", "outside"),
    [
        ("2.1.2", "2.1.2", "2.1.1 2.1.3 2.1 2.1.20 12.1.2"),
        ("2.0.0 and 2.0.1", "2.0.0 2.0.1", "1.10.0 2.0.2 2.1.0"),
        ("2.0.0 to 2.1.0", "2.0.0 2.0.1 2.1.0", "1.10.0 2.1.1 2.10.0"),
        ("2.4.0 and later", "2.4.0 2.6.3 2.10.0 3.0.0", "2.3.9 1.10.0 2.0.1"),
        ("1.10.0 and before", "1.10.0 1.9.0 0.1.0", "1.10.1 2.0.0"),
        ("2.0.0-rc.3 and before", "2.0.0-rc.3 2.0.0-rc.2 1.10.0", "2.0.0-rc.4 2.0.0 2.0.1"),
        ("2.0.0 and later", "2.0.0 2.0.1-rc.1", "2.0.0-rc.4 1.10.0"),
        ("2.0.0-rc.9 and later", "2.0.0-rc.10 2.0.0", "2.0.0-rc.8"),
        ("all releases", "0.0.1 2.5.2", ""),
        ("the page itself", "", "2.5.2"),
        ("the page itself; sound and documented", "", "2.5.2"),
        ("sound (ours)", "", "2.5.2"),
        ("2.1.0 to the end", "", "2.1.0 2.1.1"),
    ],
)
def test_a_divergence_speaks_of_the_releases_that_it_names(releases, inside, outside):
    row = Divergence(releases, "It does otherwise.")
    assert [version for version in inside.split() if not row.covers(version)] == []
    assert [version for version in outside.split() if row.covers(version)] == []
    # What is no release is none of them, and does not raise.
    others = ("", "sound", "main", "2.x", "2.1.2.dev3", "v2.1.2", "-", "-rc.1", "2..1", "later")
    assert [other for other in others if row.covers(other)] == []


def test_every_divergence_that_covers_a_release_is_known_of_it():
    rows = (Divergence("2.0.0 to 2.1.0", "a"), Divergence("2.1.0 and later", "b"))
    (rule,) = catalogue.read(GOOD, "good.toml")
    rule = replace(rule, divergences=rows)
    known = {version: rule.divergences_of(version) for version in ("1.0.0", "2.1.0", "2.1.1")}
    assert known == {"1.0.0": (), "2.1.0": rows, "2.1.1": rows[1:]}


@pytest.mark.parametrize(("system", "first"), [("spyre", "2"), ("vllm", "0"), ("generic", None)])
def test_a_rule_of_every_system_has_the_divergences_of_its_own_releases(system, first):
    listed = {
        row.releases[0]
        for rule in catalogue.load(system)
        if rule.id.startswith("ALL-")
        for row in rule.divergences
    }
    assert listed == ({first} if first else set())


def test_every_divergence_covers_each_release_that_it_names(rules):
    for rule in rules:
        for row in rule.divergences:
            numbers = re.findall(r"\d+(?:\.\d+)+(?:-rc\.\d+)?", row.releases)
            assert [number for number in numbers if not row.covers(number)] == [], (
                rule.id,
                row.releases,
            )


KNOWN = ", ".join(SYSTEMS)


@pytest.mark.parametrize("system", ["orca", "common", "../spyre", ""])
def test_a_system_without_a_catalogue_is_refused_with_those_that_have_one(system):
    with pytest.raises(CatalogueError, match=rf"has no rule catalogue.*{KNOWN}$"):
        catalogue.load(system)


def test_every_system_has_a_catalogue_of_more_than_the_common_rules():
    for system in SYSTEMS:
        common = [rule for rule in COMMON if rule != "ALL-R07" or system != "generic"]
        assert ids(catalogue.load(system))[: len(common)] == common
        assert len(catalogue.load(system)) > len(common)


def test_selected_rules_come_in_catalogue_order_and_once(rules):
    chosen = catalogue.select(rules, ["SPY-R07", "SPY-R30", "ALL-R01", "SPY-R07"])
    assert ids(chosen) == ["ALL-R01", "SPY-R30", "SPY-R07"]
    assert catalogue.select(rules, []) == ()


def test_an_unknown_id_is_refused_with_close_ones_and_where_to_look(rules):
    with pytest.raises(CatalogueError) as caught:
        catalogue.select(rules, ["SPY-R30", "spy-r09"])
    assert str(caught.value).startswith("no rule 'spy-r09'; did you mean SPY-R09? ")
    assert str(caught.value).endswith("`schedproof rules` lists the rules")
    with pytest.raises(CatalogueError, match=r"'spy-r9'; did you mean SPY-R09\? `schedproof"):
        catalogue.select(rules, ["spy-r9"])


def test_an_id_of_another_system_is_refused_with_its_system(rules):
    with pytest.raises(CatalogueError, match=r"no rule 'GEN-R02' here: it is a rule of generic"):
        catalogue.select(rules, ["GEN-R02"])


def test_an_id_like_no_other_is_refused_without_a_guess(rules):
    with pytest.raises(CatalogueError) as caught:
        catalogue.select(rules, ["~"])
    assert str(caught.value) == "no rule '~'; `schedproof rules` lists the rules"


def test_the_catalogue_loads_from_a_zip_that_holds_nothing_but_spec(tmp_path):
    archive = tmp_path / "schedproof.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("schedproof/__init__.py", "")
        packed.writestr("schedproof/spec/__init__.py", "")
        packed.writestr("schedproof/systems.py", (ROOT / "systems.py").read_text("utf-8"))
        for name in ("catalogue.py", "systems.py", "common.toml", "spyre.toml"):
            text = resources.files("schedproof.spec").joinpath(name).read_text("utf-8")
            packed.writestr(f"schedproof/spec/{name}", text)
    script = "\n".join(
        (
            "import sys; sys.path.insert(0, sys.argv[1])",
            "from schedproof.spec import catalogue",
            "from schedproof.systems import register_builtin",
            "register_builtin()",
            "print(catalogue.__file__, len(catalogue.load('spyre')))",
            "names = [name for name in sys.modules if name.startswith('schedproof.')]",
            "core = ('schedproof.spec', 'schedproof.systems')",
            "assert not [name for name in names if not name.startswith(core)]",
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(archive)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    place, count = done.stdout.split()
    assert Path(place).is_relative_to(archive)
    assert int(count) == len(COMMON + CHECKED + UNCHECKED)


def test_every_toml_file_beside_the_loader_belongs_to_a_system():
    folder = resources.files("schedproof.spec")
    files = {entry.name for entry in folder.iterdir() if entry.name.endswith(".toml")}
    shared = {"common.toml", "shared.toml"}
    assert files == {*shared, *(f"{system}.toml" for system in SYSTEMS)}


CHANGED = """
[[rule]]
id = "XYZ-R01"
title = "t"
statement = "Never more than four."
source = "a page"
kind = "safety"
revisions = ["*"]
needs = []
witness = "w"
engines = ["hypothesis"]

[[rule.change]]
since = "0.31.0"
statement = "Never more than four, unless alone."
source = "release 0.31.0: a docstring"
change = "pull request 1"
"""


@pytest.mark.parametrize(
    ("revision", "alone"),
    [("", False), ("documented", False), ("0.30", False), ("0.31", True), ("0.33", True)],
)
def test_a_rule_says_what_the_revision_documents(revision, alone):
    [rule] = catalogue.read(CHANGED, "changed.toml")
    worded = rule.worded(revision)
    assert ("unless alone" in worded.statement) is alone
    assert (worded.source == "a page") is not alone
    known = [(row.releases, row.change) for row in worded.divergences_of("0.33.0")]
    assert known == ([] if alone else [("0.31.0 and later", "pull request 1")])
    assert worded.divergences_of("0.30.0") == ()


@pytest.mark.parametrize("since", ["soon", "0.31.0.dev1", ""])
def test_a_change_names_the_release_that_has_it_first(since):
    with pytest.raises(catalogue.CatalogueError, match=r"rule\[0\]\.change\[0\]\.since"):
        catalogue.read(CHANGED.replace('"0.31.0"', f'"{since}"'), "changed.toml")


def test_changes_stand_in_the_order_of_their_releases():
    again = CHANGED + CHANGED[CHANGED.index("[[rule.change]]") :]
    with pytest.raises(catalogue.CatalogueError, match=r"after 0\.31\.0"):
        catalogue.read(again, "changed.toml")
