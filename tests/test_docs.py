"""The documentation does what it says: its files are written, its commands run, its output shown.

A block with `title="FILE"` is that file. A block with `replace="FILE"` takes the place of the one
line there that begins as its last line does. In a console block a line of three dots stands for any
lines, three dots at the end of a line for its rest. What installs something is left out.

Commands in `sh` blocks, and those of the README, need a release, the network or minutes: they are
not run, but their options and arguments must be those of the command line, and their files there.
"""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from packaging.requirements import Requirement

from schedproof.gate.cli import app
from schedproof.solver.spyre.proofs_by_rule import limit_lemmas
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

from .command_line import runner
from .gate.web.base.browser import browser

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r'^```(\w+)(?: (title|replace)="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE
)
ADAPTER = ("title", "adapter.py")
FENCED = re.DOTALL | re.MULTILINE
SH = r"^```sh\n(.*?)^```$"
INSTALLS = ("python3 -m venv", "pip install")
ALIKE = 20  # characters


class Command(NamedTuple):
    """A line after `$`, and what the document shows of its output."""

    words: str
    shown: str


def commands(block):
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        words, _, shown = part.partition("\n")
        yield Command(words, shown)


def as_pattern(shown):
    lines = [
        r"(?:.*\n)*?"
        if line == "..."
        else re.escape(line.removesuffix("...")) + (r".*\n" if line.endswith("...") else r"\n")
        for line in shown.splitlines()
    ]
    return "".join(lines)


def replace_line(path, block):
    lines = path.read_text().splitlines(keepends=True)
    begins = block.splitlines()[-1].strip()[:ALIKE]
    [number] = [n for n, line in enumerate(lines) if line.strip().startswith(begins)]
    path.write_text("".join([*lines[:number], block, *lines[number + 1 :]]))


def pages():
    return sorted((ROOT / "docs").rglob("*.md"))


def name_of(page):
    return str(page.relative_to(ROOT))


NEW_SYSTEM = "docs/guides/new-system.md"
# Two of its commands prove all lemmas on the limit, each for a minute.
PROVES = "docs/tutorials/formula.md"
RUN = [
    pytest.param(name_of(page), marks=pytest.mark.nightly if name_of(page) == PROVES else ())
    for page in pages()
    if "```console" in page.read_text(encoding="utf-8") and name_of(page) != NEW_SYSTEM
]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_a_page_works_word_for_word(page, tmp_path):
    assert_works(page, tmp_path, assert_shows)


@pytest.mark.slow
def test_the_page_that_proves_works_with_the_lemmas_on_the_formula(tmp_path, monkeypatch, capfd):
    """The lemmas on the step do not depend on the formula: test_certificate proves them."""

    def without_step(*query):
        return [group for group in limit_lemmas(*query) if "step, run with" not in group.title]

    def assert_shows_in_this_process(command, folder):
        result = run(*shlex.split(command.words)[1:])
        assert re.fullmatch(as_pattern(command.shown), result.out), result

    place = "schedproof.gate.search.spyre.volumetric"
    monkeypatch.setattr(f"{place}.limit_lemmas", without_step)
    monkeypatch.setattr(f"{place}.run_in_process", lambda seconds, work, *args: work(*args))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    run = runner(monkeypatch, capfd)
    assert_works(PROVES, tmp_path, assert_shows_in_this_process)


def assert_works(page, folder, assert_shows):
    ran = 0
    for kind, role, name, block in BLOCK.findall((ROOT / page).read_text()):
        if role == "title":
            (folder / name).write_text(block)
        elif role == "replace":
            replace_line(folder / name, block)
        elif kind == "console":
            for command in commands(block):
                if not command.words.startswith(INSTALLS):
                    assert_shows(command, folder)
                    ran += 1
    assert ran >= 1


@pytest.mark.slow
def test_a_new_system_needs_the_steps_of_its_page_and_no_others(tmp_path):
    """Its commands run in a copy of the repository; its Python goes to the end of systems.py."""
    copy = tmp_path / "schedproof"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "*.egg-info", "__pycache__"))
    for kind, _, _, block in BLOCK.findall((ROOT / NEW_SYSTEM).read_text(encoding="utf-8")):
        if kind == "python":
            with (copy / "systems.py").open("a", encoding="utf-8") as systems:
                systems.write(block)
        else:
            for command in commands(block):
                assert_shows(command, copy, PYTHONPATH=str(tmp_path))


def assert_shows(command, folder, **variables):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ran = subprocess.run(
        command.words,
        shell=True,
        cwd=folder,
        env={**env, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.fullmatch(as_pattern(command.shown), ran.stdout), ran.stdout + ran.stderr


def test_the_adapter_of_the_tutorial_takes_one_screen():
    page = (ROOT / "docs" / "tutorials" / "adapter.md").read_text()
    [adapter] = [block for _, role, name, block in BLOCK.findall(page) if (role, name) == ADAPTER]
    code = [line for line in adapter.splitlines() if line.strip()]
    assert len(code) <= 45


def words_of(line):
    return shlex.split(line, comments=True)


def unrun():
    """File and command of every `sh` block, and of the README's blocks."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [("README.md", block) for block in re.findall(r"^```\n(.*?)^```$", readme, FENCED)]
    for page in pages():
        text = page.read_text(encoding="utf-8")
        blocks += [(name_of(page), block) for block in re.findall(SH, text, FENCED)]
    return [
        (name, line)
        for name, block in blocks
        for line in block.splitlines()
        if line.startswith(("schedproof ", "make "))
    ]


def spoken_of():
    """File and command of every sentence; `[TARGET]`, `a|b` and three dots are no command."""
    return [
        (name, line)
        for name in ["README.md", "CONTRIBUTING.md", *map(name_of, pages())]
        for line in re.findall(r"`((?:schedproof|make) [^`\n]+)`", (ROOT / name).read_text("utf-8"))
        if not set(line) & set("[|…")
    ]


def parse(words):
    """As the command line does in a folder with `[tool.schedproof]`, without running anything."""
    command: Any = typer.main.get_command(app.app)
    rest = words[1:]
    while hasattr(command, "commands"):
        assert rest[0] in command.commands, words
        command = command.commands[rest.pop(0)]
    command.make_context(command.name, rest, default_map={"target": "model"})


def check_make(words):
    """The target is in the Makefile, which reads the variables; the tool that it names exists."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert words[1] in re.findall(r"^([\w-]+):", makefile, re.MULTILINE)
    given = dict(word.split("=", 1) for word in words[2:])
    assert given.keys() <= {*re.findall(r"\$\(([A-Z]+)\)", makefile)}
    if "NAME" in given:
        place = ROOT.joinpath("tools", *given["NAME"].split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists()


@pytest.mark.parametrize(("name", "line"), sorted({*unrun()}))
def test_a_command_that_is_not_run_is_one_that_the_command_line_takes(name, line):
    words = words_of(line)
    if words[0] == "make":
        check_make(words)
        return
    parse(words)
    for word in words:
        if word.split("/")[0] in ("docs", "gate", "tests", "examples") and "/" in word:
            assert (ROOT / word).exists(), f"{name}: {word}"


@pytest.mark.parametrize(("name", "line"), sorted({*spoken_of()}))
def test_a_command_that_is_spoken_of_has_the_options_that_it_is_said_to(name, line):
    """It may lack what it needs, as in "`schedproof gate nano-vllm --path` with a checkout"."""
    words = words_of(line)
    if words[0] == "make":
        check_make(words)
        return
    try:
        parse(words)
    except app.COMMAND_LINE_ERROR as error:
        if type(error).__name__ not in ("MissingParameter", "BadOptionUsage"):
            raise


def test_there_are_such_commands_and_wrong_ones_are_noticed():
    assert len(unrun()) >= 30
    assert len(spoken_of()) >= 10
    for line in ("schedproof gate --no-such", "schedproof replay", "schedproof gate --seed x"):
        with pytest.raises(app.COMMAND_LINE_ERROR):
            parse(words_of(line))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for module in ("mkdocs", "material"):
        pytest.importorskip(module, reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    return folder


def test_every_table_of_a_format_or_a_configuration_can_be_made():
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    hook = runpy.run_path(str(ROOT / "docs" / "hooks" / "formats.py"))
    for page in (ROOT / "docs").rglob("*.md"):
        hook["on_page_markdown"](page.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_every_rule_has_its_place_in_the_site(site):
    for system in SYSTEMS:
        page = (site / "reference" / "rules" / f"{system.replace('_', '-')}.html").read_text(
            encoding="utf-8"
        )
        for rule in load(system):
            assert f'id="{rule.id.lower()}"' in page, rule.id
            assert escape(rule.source, quote=False) in page


@pytest.mark.slow
def test_every_page_of_a_system_has_a_figure_that_is_there(site):
    for system in SYSTEMS:
        page = site / "reference" / "rules" / f"{system.replace('_', '-')}.html"
        frames = re.findall(r"<iframe[^>]+>", page.read_text("utf-8"))
        assert frames
        for frame in frames:
            [title], [source] = (re.findall(rf'{key}="([^"]+)"', frame) for key in ("title", "src"))
            assert len(title) > 10
            drawn = (page.parent / source.partition("#")[0]).resolve()
            assert 'id="timeline"' in drawn.read_text("utf-8")
            assert drawn.with_suffix(".json").is_file()


@pytest.mark.slow
def test_the_site_loads_nothing_from_the_network_and_its_blocks_are_blocks(site):
    loading = re.compile(r'(?:src|srcset)="(?:https?:)?//|<link[^>]+href="(?:https?:)?//[^>]*>')
    read = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not loading.search(text), page.name
        assert "```" not in text, f"{page.name} has a block that is none"
        read += 1
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\W?(?:https?:)?//", style.read_text(encoding="utf-8"))
    assert read >= 12


GENERATED = {"reference/lemmas.html"}  # one table, made by a tool


@pytest.mark.slow
def test_on_a_phone_every_page_is_short_and_a_link_opens_its_section(site):
    """Sections of long pages are folded; what is generated may be longer."""
    with browser() as chromium:
        context = chromium.new_context(viewport={"width": 400, "height": 900})
        tab = context.new_page()
        sizes = {}
        for page in site.rglob("*.html"):
            tab.goto(page.as_uri(), wait_until="domcontentloaded")
            root = "document.documentElement"
            sizes[page.relative_to(site).as_posix()] = (
                tab.evaluate(f"{root}.scrollHeight"),
                tab.evaluate(f"{root}.scrollWidth"),
            )
        too_long = {name for name, (height, _) in sizes.items() if height > 15_000}
        assert too_long <= GENERATED
        assert {name for name, (_, width) in sizes.items() if width > 400} == set()
        heading = "v24-sessions-wait-for-each-others-blocks"
        tab.goto(f"{(site / 'findings' / 'vllm-features.html').as_uri()}#{heading}")
        section = tab.locator("details.section", has=tab.locator(f"#{heading}"))
        assert section.evaluate("one => one.open")
        assert tab.locator("details.section[open]").count() == 1


def test_the_readme_shows_what_the_replay_prints(tmp_path, monkeypatch, capfd):
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    [scenario] = re.findall(r'title="overshoot.json"\n(.*?)^```$', index, FENCED)
    (tmp_path / "overshoot.json").write_text(scenario)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [command] = commands(re.findall(r"^```\n(.*?)^```$", readme, FENCED)[0])
    monkeypatch.chdir(tmp_path)
    printed = runner(monkeypatch, capfd)(*words_of(command.words)[1:]).out
    for line in command.shown.splitlines():
        shown = [part.strip() for part in line.split("...")]
        assert all(part in printed for part in shown), line


def test_the_readme_counts_the_rules_of_the_catalogue():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    counts = re.findall(r"^\|.*\| (\d+) of (\d+) \|", readme, re.MULTILINE)
    rules = [load(system) for system in SYSTEMS]
    assert counts == [(str(sum(rule.checked for rule in all_)), str(len(all_))) for all_ in rules]


def test_the_page_of_limits_counts_the_rules_of_the_catalogue():
    limits = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
    text = re.sub(r"\ball (\d+) for", r"\1 of the \1 for", limits.partition(";")[0])
    counts = re.findall(r"(\d+)\sof\sthe\s(\d+)\s(?:rules\s)?for", text)
    rules = [load(system) for system in SYSTEMS]
    assert counts == [(str(sum(rule.checked for rule in all_)), str(len(all_))) for all_ in rules]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCKED = dict(
    re.findall(r"^([a-z0-9-]+)==([\w.]+) \\$", (ROOT / "requirements.lock").read_text(), re.M)
)


def test_every_dependency_is_locked_with_hashes_in_a_version_that_is_allowed():
    asked = [Requirement(line) for line in PROJECT["dependencies"]]
    for requirement in asked:
        assert requirement.specifier.contains(LOCKED[requirement.name]), requirement
    text = (ROOT / "requirements.lock").read_text()
    assert text.count("--hash=sha256:") >= len(LOCKED)
    assert "file:" not in text


def test_the_container_is_made_of_files_that_there_are():
    text = (ROOT / "Containerfile").read_text()
    for source in re.findall(r"^COPY (\S+) ", text, re.MULTILINE):
        assert (ROOT / source).exists()
    assert 'ENTRYPOINT ["schedproof"]' in text
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    needed = ("spec", "model", "properties", "solver", "gate", "pyproject.toml", "README.md")
    assert not {*left_out} & {*needed}


def test_an_index_knows_what_it_is_and_what_it_needs():
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["readme"] == "README.md"
    versions = [
        classifier
        for classifier in PROJECT["classifiers"]
        if classifier.startswith("Programming Language")
    ]
    assert f"Programming Language :: Python :: {PROJECT['requires-python'][2:]}" in versions
