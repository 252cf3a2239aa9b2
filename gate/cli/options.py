"""Options that several commands share, and their defaults from `[tool.schedproof]`."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ...model.errors import InputError
from ...spec.catalogue import load
from ...spec.systems import first_system
from ..console import interrupts
from ..console.option_checks import at_least, check_choice
from ..files.disk import MAX_TOML, read_text
from ..files.project_file import FILE, TABLE, Project, read_project
from ..judging.profiles import PROFILES
from ..judging.rule_choice import excluded_ids, rules_named
from ..targets import checkouts, releases
from ..targets.checkouts import known_checkouts
from ..targets.supported_releases import ReleaseError, packages, parse_release
from ..targets.target_spec import MIN_MEMORY, TargetSpec, UnknownTargetError, parse_target

NO_TARGET = (
    "none named; valid: MODULE:FACTORY for your own scheduler (`schedproof init` writes an "
    "adapter), a release (vllm==0.33.0), or model, schedproof's own model of Spyre"
)

RULES_OF = ("target", "system", "revision")
# For each command, the keys of the project file that set defaults for its options. The command line
# takes precedence.
KEYS = {
    "gate": (*RULES_OF, "profile", "corpus", "deviations", "exclude", "extra_rules"),
    "doctor": RULES_OF,
    "replay": ("target", "system", "exclude", "extra_rules"),
    "show": ("target", "system", "exclude", "extra_rules"),
    "step": RULES_OF,
    "diff": ("system", "revision"),
    "explore": ("system", "revision"),
    "rules": ("system",),
}
CORPUS_KEYS = {
    **dict.fromkeys(
        ("add", "run", "prune", "verify", "export"), ("target", "corpus", "extra_rules")
    ),
    "minimize": ("target", "extra_rules"),
    "list": ("corpus",),
}


def defaults() -> dict[str, Any]:
    """Return the defaults that the folder's pyproject.toml sets, by command and option."""
    project = read_project()
    if project.profile is not None:
        check_choice("pyproject.toml: tool.schedproof.profile", project.profile, PROFILES)
    commands: dict[str, Any] = {name: _given(project, keys) for name, keys in KEYS.items()}
    if project.target is not None and (own := _own_system(project.target)) is not None:
        commands["explore"].setdefault("system", own)
    return commands | {
        "corpus": {name: _given(project, keys) for name, keys in CORPUS_KEYS.items()}
    }


def option_for_target(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
    """Return the option's value. Return None instead if the value comes from the project file but
    does not suit the target on the command line.

    If the command line names a release or a checkout, its own system, revision and rules apply,
    because those in the project file belong to another target.
    """
    name = str(option.name)
    target = context.params.get("target", context.params.get("target_a"))
    if target is None or from_project(context, "target") or not from_project(context, name):
        return value
    system = _own_system(str(target))
    if system is None or (name != "revision" and system == _system(context)):
        return value
    return None


def named_target(
    context: typer.Context,
    text: str,
    path: Path | None = None,
    scheduler_cls: str | None = None,
    beyond_start_up: bool = False,
) -> TargetSpec:
    """Return the target named on the command line.

    If the project file names another target, set `beside_another`, so that printed replay commands
    include the target.
    """
    try:
        spec = parse_target(text, path, scheduler_cls)
    except (UnknownTargetError, ReleaseError) as error:
        if not from_project(context, "target"):
            raise
        raise UnknownTargetError(f"pyproject.toml: tool.schedproof.target: {error}") from None
    if beyond_start_up and not spec.has_start_up:
        valid = f"a release or a checkout of {', '.join(packages())}"
        raise InputError(
            "--beyond-start-up", f"{text} has no start-up checks; the option is valid with {valid}"
        )
    other = (context.default_map or {}).get("target", text) != text
    return replace(spec, beside_another=other, beyond_start_up=beyond_start_up)


def rules_to_exclude(
    context: typer.Context, exclude: Sequence[str] | None, rule: Sequence[str] | None, system: str
) -> Sequence[str]:
    """Return the rules to exclude.

    Exclusions in the project file apply only to the project's system. They never apply to rules
    that the command line names.
    """
    if is_for_another_system(context, "exclude", system):
        return ()
    if not (exclude and from_project(context, "exclude")):
        return exclude or ()
    catalogue = load(system)
    named = rules_named(catalogue, rule) if rule else {}
    return [rule_id for rule_id in excluded_ids(catalogue, exclude) if not named.get(rule_id)]


def is_for_another_system(context: typer.Context, name: str, system: str) -> bool:
    return from_project(context, name) and system != (_system(context) or first_system())


def project_note(systems: Collection[str]) -> str:
    """Return a line that says how the project file affects the gates of these systems, or ""."""
    given = read_project().given
    system = given.get("system") or _own_system(given.get("target", "")) or first_system()
    keys = [key for key in ("exclude", "deviations", "extra_rules") if key in given]
    if not keys or system not in systems:
        return ""
    return f"{', '.join(keys)} of [{TABLE}] in {FILE} {'apply' if keys[1:] else 'applies'}"


def project_settings(system: str) -> str:
    """Return a name for the changes that the project file makes to the gates of this system, or ""
    if there are none. If there are deviations, the name contains the date, because an entry may
    expire."""
    if not project_note([system]):
        return ""
    project = read_project()
    names = (project.deviations, project.extra_rules)
    files = [name and read_text(Path(name), MAX_TOML, "setting of a gate") for name in names]
    today = project.deviations and date.today().isoformat()
    settings = msgspec.json.encode((project.exclude, files, today))
    return hashlib.sha256(settings).hexdigest()[:10]


def model_note(does: str, system: str) -> str:
    """Return a line which says that a command uses the system's model and not the project file's
    target, or "" if the file names no target. `does` is what the command does with the model."""
    target = read_project().target
    if target is None or target.partition(":")[0] == "model":
        return ""
    model = f"{does} schedproof's own model of {system}"
    return f"{model}, not the target {target} of {FILE}, which `schedproof gate` judges"


def from_project(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def is_unset(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT"


def _given(project: Project, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in project.given.items() if key in keys}


def _system(context: typer.Context) -> str | None:
    defaults = context.default_map or {}
    named: str | None = defaults.get("system")
    return named or _own_system(defaults.get("target", ""))


def _own_system(target: str) -> str | None:
    try:
        return parse_target(target).own_system
    except (InputError, ReleaseError, UnknownTargetError):
        return None  # the code that reads the file reports the error


TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        help="model, MODULE:FACTORY, 'cmd:COMMAND LINE' or a release (vllm==0.28.0)",
    ),
]
SystemOption = Annotated[
    str | None,
    typer.Option(
        help="system whose rules apply (default: the target's own)", callback=option_for_target
    ),
]
RevisionOption = Annotated[
    str | None,
    typer.Option(
        help="published behaviour to judge by (default: the target's own)",
        callback=option_for_target,
    ),
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        help="check only this rule, or all that match a pattern such as 'ALL-*'; repeat the option "
        "or write A,B to add more",
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        help="do not judge this rule, because it is broken on purpose; repeat the option or write "
        "A,B to add more",
        callback=option_for_target,
    ),
]
ExtraRulesOption = Annotated[
    Path | None,
    typer.Option(
        "--extra-rules",
        help="Python file with your own additional rules; the file is executed",
        callback=option_for_target,
    ),
]
CompareWithOption = Annotated[
    str | None,
    typer.Option(
        "--compare-with",
        help="compare each step with the model of this revision; `none` turns this off "
        "(default: the model of --revision, if rule ALL-R07 applies to it)",
    ),
]


def checked_step_limit(seconds: float) -> float:
    at_least("--step-limit", seconds, 0.1)
    return seconds


def checked_memory_limit(mib: int) -> int:
    at_least("--memory-limit", mib, MIN_MEMORY)
    return mib


StepLimit = Annotated[
    float,
    typer.Option(
        "--step-limit",
        help="seconds that a target may take for a step, at least 0.1",
        callback=checked_step_limit,
    ),
]
MemoryLimit = Annotated[
    int,
    typer.Option(
        "--memory-limit",
        help="MiB that the target's process may use, at least 64",
        callback=checked_memory_limit,
    ),
]
Offline = Annotated[
    bool, typer.Option("--offline", help="do not install anything; fail if a release is missing")
]
CheckoutPath = Annotated[
    Path | None,
    typer.Option("--path", help=f"folder of a checkout of {', '.join(known_checkouts())}"),
]
ClassPath = Annotated[
    Path | None,
    typer.Option(
        "--path",
        help=f"folder of a checkout of {', '.join(known_checkouts())}, or of the class that "
        "--scheduler-cls names",
    ),
]
SchedulerClass = Annotated[
    str | None,
    typer.Option(
        "--scheduler-cls",
        help="judge this class instead of the release's own: PACKAGE.MODULE.CLASS or FILE.py:CLASS",
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option(
        "--base",
        help="report only rules that TARGET breaks and this base does not; the base is another "
        "target, or another revision of the checkout's repository",
    ),
]
AgainstBase = Annotated[
    bool,
    typer.Option(
        "--against-base",
        help="use the release's own class as the base of --scheduler-cls",
    ),
]


BeyondStartUp = Annotated[
    bool,
    typer.Option(
        "--beyond-start-up",
        help="include configurations with which a server of the release would not start",
    ),
]


def begin_time_limit(seconds: float | None) -> float | None:
    if seconds is not None:
        at_least("--time-limit", seconds, 1)
        interrupts.limit(seconds)
    return seconds


TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        help="seconds for the whole command, at least 1; results so far are reported",
        callback=begin_time_limit,
        expose_value=False,
    ),
]


def base_of(spec: TargetSpec, against_base: bool, base: str | None) -> TargetSpec | None:
    """Return the target that `--base` or `--against-base` names, or None. For a checkout,
    `--base` may name a revision of its repository."""
    if against_base:
        if base is not None:
            raise InputError("--against-base", f"not valid together with --base {base}")
        if not spec.scheduler:
            problem = f"{spec.text} has no base; valid: a release with --scheduler-cls CLASS"
            raise InputError("--against-base", problem)
        return spec.base_class()
    if base is None:
        return None
    if spec.checkout is not None and parse_release(base) is None and ":" not in base:
        return at_revision(spec, base)
    return parse_target(base)


def at_revision(spec: TargetSpec, revision: str) -> TargetSpec:
    assert spec.checkout is not None
    folder = checkouts.folder_of(spec.checkout, spec.folder)
    place = releases.checkout_at(folder, revision, spec.checkout.name)
    return parse_target(spec.checkout.name, place)
