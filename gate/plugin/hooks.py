"""The pytest plugin's hooks: collect one test per rule, and one per scenario of the user's corpus.

    [tool.pytest.ini_options]
    schedproof_target = "my_pkg.sched:make_target"

pytest loads this module in every environment that contains schedproof. So the module imports
nothing else until a target is named.
"""

from pathlib import Path

import pytest

from . import JUDGEMENT, REPORTED

OPTIONS = {
    "target": "the scheduler under test, named as for `schedproof gate`",
    "profile": "how much to search: quick, ci or nightly (default: quick)",
    "system": "the system whose rules apply (default: the target's own)",
    "revision": "the published behaviour to judge by (default: the target's own)",
    "corpus": "a folder of scenarios, each of which becomes a test (default: schedproof-corpus, if "
    "it exists)",
    "deviations": "a file with known failures and rules broken by design",
    "exclude": "rules that the scheduler breaks on purpose, as A,B",
    "seed": "the seed of the search; the same seed gives the same runs (default: 0)",
}
ON_THE_COMMAND_LINE = ("target", "profile", "seed")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("schedproof")
    for name, says in OPTIONS.items():
        parser.addini(f"schedproof_{name}", says)
        if name in ON_THE_COMMAND_LINE:
            group.addoption(f"--schedproof-{name}", metavar=name.upper(), help=says)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "schedproof: a test of a schedproof rule or scenario")
    given = {name: _given(config, name) for name in OPTIONS}
    if not given["target"]:
        return
    if config.inipath is None:
        raise pytest.UsageError(
            "--schedproof-target: the tests belong to pytest's configuration file, but there is "
            "none; valid: a pyproject.toml that contains [tool.pytest.ini_options]"
        )
    from .judgement import Judgement, read_setting

    config.stash[JUDGEMENT] = Judgement(config, read_setting(config.rootpath, given))
    # If the user names tests but no target, only those tests run.
    named_tests = config.args_source is pytest.Config.ArgsSource.ARGS
    if not _is_collected(config) and (_on_command_line(config, "target") or not named_tests):
        config.args.append(str(config.inipath))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if JUDGEMENT not in parent.config.stash or file_path != parent.config.inipath:
        return None
    from .items import RuleFile

    return RuleFile.from_parent(parent, path=file_path)


def pytest_terminal_summary(
    terminalreporter: "pytest.TerminalReporter", config: pytest.Config
) -> None:
    """Print how much was judged, because passing tests alone do not show it."""
    if JUDGEMENT in config.stash and not _is_collected(config):
        target, file = config.stash[JUDGEMENT].setting.target.text, config.inipath
        terminalreporter.write_line(
            f"schedproof: {target} is not judged; to judge it, add {file and file.name} to the "
            "arguments"
        )
    notices = dict.fromkeys(
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == REPORTED
    )
    for line in notices:
        terminalreporter.write_line(f"schedproof: {line}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if JUDGEMENT in config.stash:
        config.stash[JUDGEMENT].close()


def _given(config: pytest.Config, name: str) -> str:
    return str(_on_command_line(config, name) or config.getini(f"schedproof_{name}") or "")


def _on_command_line(config: pytest.Config, name: str) -> str | None:
    return config.getoption(f"--schedproof-{name}") if name in ON_THE_COMMAND_LINE else None


def _is_collected(config: pytest.Config) -> bool:
    """Return whether pytest's arguments name pytest's configuration file, a test in this file, or a
    folder that contains it."""
    file, folder = config.inipath, config.invocation_params.dir
    named = [(folder / arg.partition("::")[0]).resolve() for arg in config.args]
    return file is not None and any(file.is_relative_to(path) for path in named)
