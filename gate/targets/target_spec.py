"""Parse the TARGET of a command line into its kind, its limits and its replay options."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...model.errors import InputError
from ...model.systems import knows_formula, valid_formulas
from ...properties.rules.predicate import Broken
from ...spec.systems import first_system
from . import checkouts
from .checkouts import Checkout, known_checkouts
from .supported_releases import Release, parse_release

STEP_LIMIT = 10.0  # seconds that a target may take for a step
MEMORY_LIMIT, MIN_MEMORY = 8192, 64  # MiB


Kind = Literal["model", "factory", "command", "release", "checkout"]
CLASSES = "FILE.py:CLASS, PACKAGE.MODULE.CLASS, or DIR:PACKAGE.MODULE.CLASS"


def _valid() -> str:
    return (
        "valid: model, MODULE:FACTORY, 'cmd:COMMAND LINE', a release such as "
        "sendnn-inference==2.1.2 or vllm==0.28.0 (with another scheduler class: "
        f"vllm==0.28.0:FILE.py:CLASS), or a checkout: {', '.join(known_checkouts())}"
    )


class UnknownTargetError(ValueError):
    """Raised if a TARGET has no valid form or cannot be opened. The message is a single line."""


@dataclass(frozen=True)
class TargetSpec:
    """A scheduler under test, as the user names it.

    Attributes:
        kind: the form of the target, which determines which of the other fields apply.
        formula: the volumetric formula that `model:FORMULA` names. It replaces the revision's own.
        scheduler: the class that replaces the release's own, in one of the forms in `CLASSES`, with
            an absolute path.
        is_base: whether to run the base class of `scheduler` in place of `scheduler`.
        beyond_start_up: whether to accept configurations with which a server would not start.
        coverage: a folder in which the target's processes record the lines that they run.
        beside_another: whether the project file names another target. Printed commands must then
            name this one.
        checkout, folder: the parts of `NAME:DIR`; "" if an environment variable gives the folder.
    """

    text: str
    kind: Kind
    formula: str | None = None
    module: str = ""
    factory: str = ""
    command: tuple[str, ...] = ()
    release: Release | None = None
    scheduler: str = ""
    is_base: bool = False
    checkout: Checkout | None = None
    folder: str = ""
    beyond_start_up: bool = False
    beside_another: bool = False
    coverage: Path | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def is_model(self) -> bool:
        """Whether this is a reference model, which must not be compared with itself."""
        return self.kind == "model"

    @property
    def is_plain_model(self) -> bool:
        return self.is_model and self.formula is None

    @property
    def may_change(self) -> bool:
        """Whether the code behind the target's name may change. The code of a model or a release
        never changes."""
        return self.kind not in ("model", "release") or bool(self.scheduler)

    @property
    def own_system(self) -> str | None:
        if self.checkout is not None:
            return self.checkout.system
        return None if self.release is None else self.release.system

    @property
    def has_start_up(self) -> bool:
        checkout = self.checkout
        return self.release is not None or (checkout is not None and checkout.package is not None)

    @property
    def default_system(self) -> str:
        return self.own_system or first_system()

    @property
    def own_file(self) -> str:
        """The file of the user's class, as coverage reports name it; "" if there is none."""
        place, _, name = self.scheduler.rpartition(":")
        if place.endswith(".py"):
            return Path(place).name
        return f"{'/'.join(name.split('.')[:-1])}.py" if name else ""

    def base_class(self) -> "TargetSpec":
        return replace(self, text=self.text.partition(":")[0], is_base=True)

    def default_revision(self) -> str | None:
        """The revision to compare a release or a checkout with; None for other targets."""
        if self.checkout is not None:
            return checkouts.revision_of(self.checkout, self.folder)
        return None if self.release is None else self.release.revision


def are_versions_of_one(first: TargetSpec, second: TargetSpec) -> bool:
    """Return whether both targets are versions of the same real scheduler, or of a class that is
    derived from it. In this case, even the numbers of their blocks can be compared."""
    return first.own_system is not None and first.own_system == second.own_system


MODEL = TargetSpec("model", "model")


def model_spec(formula: str | None) -> TargetSpec:
    return TargetSpec(f"model:{formula}", "model", formula=formula) if formula else MODEL


def take_formula(spec: TargetSpec, changes: Sequence[str]) -> tuple[TargetSpec, list[str]]:
    """Apply `--config formula=NAME` to the target; return the target and the remaining changes."""
    formulas = [change.partition("=")[2] for change in changes if change.startswith("formula=")]
    if not formulas:
        return spec, [*changes]
    if not spec.is_plain_model:
        raise InputError(
            "--config",
            f"formula={formulas[-1]} does not apply to {spec}; valid only with the target model",
        )
    if not knows_formula(formulas[-1]):
        problem = f"formula {formulas[-1]!r} is unknown; valid: {valid_formulas()}"
        raise InputError("--config", problem)
    return model_spec(formulas[-1]), [
        change for change in changes if not change.startswith("formula=")
    ]


def parse_target(
    text: str, path: Path | None = None, scheduler_cls: str | None = None
) -> TargetSpec:
    """Return the target that `text` names.

    `path` is the folder given with `--path`: a checkout, or the folder that contains the package of
    `scheduler_cls`. Raise UnknownTargetError if the text has no valid form, ReleaseError if the
    release is not supported, and InputError if the options do not fit the target.
    """
    if scheduler_cls is None:
        text = checkouts.with_path(text, path)
    else:
        text = _with_class(text, path, scheduler_cls)
    word, colon, rest = text.partition(":")
    if colon and not rest and word != "cmd":  # such as from an empty variable
        raise UnknownTargetError(f"TARGET {text!r}: nothing after the colon; {_valid()}")
    if word == "model" and (not rest or knows_formula(rest)):
        return TargetSpec(text, "model", formula=rest or None)
    if word == "cmd":
        return TargetSpec(text, "command", command=_words(text, rest))
    if (named := checkouts.parse_checkout(text)) is not None:
        return TargetSpec(text, "checkout", checkout=named[0], folder=named[1])
    if (release := parse_release(word)) is not None:
        return TargetSpec(text, "release", release=release, scheduler=_scheduler(text, rest))
    if word.endswith(".py"):
        module = word.removesuffix(".py").replace("/", ".").lstrip(".")
        problem = "is a file; name the module instead, which is imported from this folder"
        raise UnknownTargetError(f"TARGET {text!r} {problem}: {module}:{rest or 'FACTORY'}")
    if "=" in text and (meant := parse_release(text.replace("=", "==", 1))) is not None:
        raise UnknownTargetError(f"TARGET {text!r}; did you mean {meant}?")
    if not all(part.isidentifier() for part in [*word.split("."), rest]):
        raise UnknownTargetError(f"TARGET {text!r} is not understood; {_valid()}")
    return TargetSpec(text, "factory", module=word, factory=rest)


def _with_class(text: str, path: Path | None, scheduler_cls: str) -> str:
    if not scheduler_cls:
        raise InputError("--scheduler-cls", f"'' is not a scheduler class; valid: {CLASSES}")
    if ":" in text or parse_release(text) is None:
        raise InputError(
            "--scheduler-cls",
            f"{scheduler_cls}: valid only with a release that names no class, such as "
            f"vllm==0.28.0, not with {text}",
        )
    return ":".join([text, *([str(path)] if path is not None else []), scheduler_cls])


def _scheduler(text: str, words: str) -> str:
    """Return the class named by the user, with FILE or DIR as an absolute path; "" if there is
    none."""
    if not words:
        return ""
    place, _, name = words.rpartition(":")
    in_file = place.endswith(".py")
    parts = name.split(".")
    if (
        not all(word.isidentifier() for word in parts)
        or in_file != (len(parts) == 1)
        or (parts[-1] == "py")
    ):
        raise UnknownTargetError(
            f"TARGET {text!r}: {words!r} is not a scheduler class; valid: {CLASSES}"
        )
    if in_file and not Path(place).is_file():
        raise UnknownTargetError(f"TARGET {text!r}: {place}: no such file; valid: {CLASSES}")
    if not in_file and not Path(place).is_dir():
        raise UnknownTargetError(f"TARGET {text!r}: {place}: no such folder; valid: {CLASSES}")
    return f"{Path(place).absolute()}:{name}"


def _words(text: str, command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UnknownTargetError(f"TARGET {text!r}: {error}; {_valid()}") from None
    if not words:
        raise UnknownTargetError(f"TARGET {text!r}: no command after cmd:; {_valid()}")
    return words


def replay_options(
    target: TargetSpec,
    rules: Sequence[str] | None,
    step_limit: float = STEP_LIMIT,
    memory_limit: int = MEMORY_LIMIT,
    compare_with: str | None = None,
    exclude: Sequence[str] = (),
    extra_rules: Path | None = None,
) -> str:
    """Return the options of `schedproof replay` that repeat a run, quoted for a shell."""
    words = ["--target", target.text]
    if target.is_plain_model and not target.beside_another:
        words = []
    words += ["--beyond-start-up"] if target.beyond_start_up else []
    words += ["--rule", ",".join(rules)] if rules else []
    words += ["--exclude", ",".join(exclude)] if exclude and not rules else []
    words += ["--extra-rules", str(extra_rules)] if extra_rules is not None else []
    words += ["--compare-with", compare_with] if compare_with is not None else []
    words += ["--step-limit", f"{step_limit:g}"] if step_limit != STEP_LIMIT else []
    words += ["--memory-limit", f"{memory_limit}"] if memory_limit != MEMORY_LIMIT else []
    return "".join(f" {shlex.quote(word)}" for word in words)


def is_adapters_fault(first: Broken, behind: Sequence[str], spec: TargetSpec) -> bool:
    """Return whether a failure must be blamed on the adapter and not on the scheduler. schedproof's
    own adapters of releases are trusted more: behind such an adapter, the scheduler is blamed if
    the run broke a rule earlier or if the scheduler is a user's class.
    """
    is_ours = spec.own_system is not None
    return first.by_adapter and not (is_ours and (behind or spec.scheduler))


def blame(broken: Sequence[Broken], spec: TargetSpec) -> list[Broken]:
    """Return the failures of a run's last step. If the scheduler is to blame for the first one, no
    failure is marked as the adapter's."""
    if not broken or is_adapters_fault(broken[0], (), spec):
        return [*broken]
    return [failure._replace(by_adapter=False) for failure in broken]
