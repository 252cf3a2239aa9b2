"""Find the base of a change: a release's own class, another target, or a revision of a
repository.
"""

from ...model.errors import InputError
from . import checkouts, releases
from .supported_releases import parse_release
from .target_spec import TargetSpec, parse_target


def base_of(spec: TargetSpec, against_base: bool, base: str | None) -> TargetSpec | None:
    """Return the target that `--base` or `--against-base` names, if any. If the target is a
    checkout, `--base` may name a revision of its repository. Raise InputError if both options are
    given, or `--against-base` without a scheduler class."""
    if against_base:
        if base is not None:
            raise InputError("--against-base", f"not together with --base {base}")
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
    """Return the checkout at another revision of its repository, in a folder of the cache."""
    assert spec.checkout is not None
    folder = checkouts.folder_of(spec.checkout, spec.folder)
    place = releases.checkout_at(folder, revision, spec.checkout.name)
    return parse_target(spec.checkout.name, place)
