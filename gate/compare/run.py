"""The engines of a comparison: the corpus, and Hypothesis at each scale, on a pair."""

from ...model.faults import ConfigRefused, TargetFault
from ..judging.context import BreakOff
from ..judging.events import Notice
from ..targets import probe as probing
from ..targets.probe import ProbeRequest, as_usual
from .context import Diff
from .corpus import keep_long_ones, replay_corpus
from .keeping import keep_refused
from .scales import run_scales


def run_diff(diff: Diff) -> None:
    """Probe both, replay the corpus, search; what came out is in `diff`.

    The seeds of a scale come before its search; a target that hangs is not searched any more.
    Ctrl-C and a target that breaks off end the engines; what was found until then is kept.

    Raises:
        KeyboardInterrupt: Ctrl-C while they are still asked what they take.
        TargetFault, ConfigRefused: one does not start, or there is no scale that both take.
    """
    scales = probe(diff)
    try:
        long_ones = replay_corpus(diff)
        run_scales(diff, scales)
        if diff.fault is None:
            keep_long_ones(diff, long_ones)
            keep_refused(diff)
    except KeyboardInterrupt:
        diff.interrupted = True
    except TargetFault as fault:
        diff.fault = BreakOff.of(fault, diff.stderr())


def probe(diff: Diff) -> list[str]:
    """The scales whose configurations both take; where there is none, without the features that one
    of them refuses."""
    request = ProbeRequest(diff.pair, diff.system, diff.revision, (), diff.fixed)
    scales, _, refusals = as_usual(request)
    if not scales:
        scales, refusals = _feature_by_feature(diff, request), {}
    diff.pair.refused.clear()  # a scale that one of them does not take is left out
    for scale, words in refusals.items():
        diff.report(Notice(f"scale {scale} left out: {words}"))
    first, second = (side.started for side in diff.pair.sides)
    assert first is not None
    assert second is not None
    diff.report(
        Notice(
            f"A: {first.name} {first.version}; B: {second.name} {second.version}; "
            f"scales {', '.join(scales)}"
        )
    )
    return scales


def _feature_by_feature(diff: Diff, request: ProbeRequest) -> list[str]:
    """The scales that both take with the features that both have; the others are fixed, and said.

    Raises:
        ConfigRefused: there is no such scale.
    """
    try:
        capabilities = probing.probe(request)
    except ConfigRefused as refusal:
        words = str(refusal).replace("the target refuses the configuration of every scale: ", "")
        raise ConfigRefused(f"there is no scale that both targets take: {words}") from None
    for line in capabilities.left_out:
        diff.report(Notice(line.replace("the target refuses", "one of them refuses")))
    diff.fixed = capabilities.fixed[capabilities.scales[0]]
    return capabilities.scales
