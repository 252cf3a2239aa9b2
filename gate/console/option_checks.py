"""Check the values of options. Each function raises an InputError that names the option."""

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...model.errors import InputError
from ...model.systems import check_system, resolve_revision
from ..files.disk import is_descriptor

LONGEST = 10**9  # seconds; the system's timers accept no more


@contextmanager
def option(name: str) -> Iterator[None]:
    """Make input errors that are raised in the block name this command-line option."""
    try:
        yield
    except InputError as error:
        raise InputError(name, error.problem) from None


def resolved_revision(system: str, revision: str | None, default: str | None = None) -> str:
    """Return the revision that --system and --revision select. Without --revision, it is
    `default` or the system's first revision."""
    with option("--system"):
        check_system(system)
    with option("--revision"):
        return resolve_revision(system, default if revision is None else revision)


def check_choice(name: str, value: str, valid: Collection[str]) -> None:
    if value not in valid:
        raise InputError(name, f"{value!r}; valid: {', '.join(valid)}")


def at_least(name: str, value: float, least: float) -> None:
    if not least <= value < math.inf:  # NaN fails this comparison too
        raise InputError(name, f"{value:g}; valid: at least {least:g}")
    if isinstance(value, float) and value > LONGEST:
        raise InputError(name, f"{value:g}; valid: at most {LONGEST:,}")


def between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InputError(name, f"{value}; valid: {least:,} to {most:,}")


OWN_WITHIN = 4096  # bytes


def check_file(name: str, file: Path) -> None:
    """Raise InputError if `file`, the value of the option `name`, cannot be written."""
    if str(file) == "-":
        raise InputError(name, "'-' does not stand for standard output here; valid: a file")
    _check_reachable(name, file)
    if file.is_file() and is_descriptor(file):
        problem = f"{file} is a file that is already open: {os.path.realpath(file)}"
        raise InputError(name, f"{problem}; valid: another file, or a pipe")
    if file.is_dir():
        raise InputError(name, f"{file} is a folder; valid: a file")
    folder = Path(os.path.realpath(file)).parent if file.is_symlink() else file.parent
    if not folder.is_dir():
        raise InputError(name, f"{file}: the folder {folder} does not exist")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InputError(name, f"{file} cannot be written to")


def check_not_input(name: str, file: Path, what: str, source: Path) -> None:
    """Raise InputError if `file`, the value of the option `name`, is `source`, because writing to
    it would overwrite the input. The message refers to `source` as `what`."""
    if source.is_file() and file.exists() and file.samefile(source):
        raise InputError(name, f"{file} is {what} itself; valid: another file")


def check_no_entry(name: str, file: Path, corpus: Path | None) -> None:
    """Raise InputError if `file`, the value of the option `name`, would be an entry of a corpus."""
    if corpus is not None and file.suffix == ".json" and file.resolve().parent == corpus.resolve():
        problem = f"{file}: a .json file in the corpus would be an entry; valid: another folder"
        raise InputError(name, problem)


def check_own(name: str, file: Path, kind: str, mark: bytes) -> None:
    """Raise InputError if `file` exists and schedproof did not write it. Call this for the default
    of the option `name`, because the user did not ask to overwrite that file. `kind` says what
    schedproof writes there, such as "page"; all such files contain `mark` near their beginning."""
    if not file.is_file():
        return
    try:
        with file.open("rb") as existing:
            begins = existing.read(OWN_WITHIN)
    except OSError as error:
        raise InputError(name, f"{file} cannot be read ({error.strerror})") from None
    if begins and mark not in begins:
        problem = f"{file} exists and is no {kind} of schedproof"
        raise InputError(name, f"{problem}; valid: name the file to write with {name}")


def check_different(files: Mapping[str, Path]) -> None:
    """Raise InputError if two options name the same file, because one would overwrite the other."""
    named: dict[Path, str] = {}
    for name, file in files.items():
        is_kept = file.is_file() or not file.exists()
        # `Path.resolve` raises an error for a link to itself, which the file's reader will report.
        place = Path(os.path.realpath(file))
        first = named.setdefault(place, name) if is_kept else name
        if first != name:
            raise InputError(name, f"{file} is also the file of {first}; valid: another file")


def check_unicode(name: str, value: str) -> None:
    """Raise InputError if the text cannot be written as UTF-8, because no report could contain
    it."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(name, f"{value!a:.60} is not UTF-8") from None


def check_places(json_file: Path | None, out: Path) -> None:
    """Raise InputError if the results could not be written. Call this before the work begins."""
    if json_file is not None:
        check_file("--json", json_file)
    _check_reachable("--out", out)
    if str(out).startswith("-"):  # the printed commands name files of this folder
        raise InputError("--out", f"{str(out)!r}; valid: a folder whose name begins with no -")
    if out.is_symlink() and not out.exists():
        raise InputError("--out", f"{out} is a broken link; valid: a folder")
    existing = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise InputError("--out", f"{out}: {existing} is not a folder")
    if not os.access(existing, os.W_OK):
        raise InputError("--out", f"{out}: {existing} cannot be written to")


def _check_reachable(name: str, path: Path) -> None:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # a missing folder will be created; if it cannot be, its parent is reported
    except OSError as error:  # for example a link to itself, or a name that is too long
        raise InputError(name, f"{path} cannot be written to ({error.strerror})") from None


def rule_words(name: str, words: Sequence[str]) -> list[str]:
    """Split the values of an option into ids and patterns. `A,B` stands for A and B."""
    parts = [part.strip() for word in words for part in word.split(",") if part.strip()]
    if words and not parts:
        raise InputError(name, f"{words[0]!r} names no rule; `schedproof rules` lists the rules")
    return parts
