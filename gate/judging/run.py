"""Open a target and judge it: what the command line and the library call."""

from collections.abc import Callable

from ..targets.factory import opened
from . import verdict
from .context import GateContext, GateOptions, GateResults
from .deviations import Deviations
from .events import Report
from .hypothesis_home import set_hypothesis_home
from .judge import judge


def run_gate(
    options: GateOptions,
    deviations: Deviations,
    report: Report,
    notice: Callable[[str], None] = lambda _: None,
) -> tuple[verdict.Verdict, GateResults]:
    """Open the target, judge it, and end its process.

    `report` receives the events of the gate, `notice` what installing a release prints.

    Raises:
        UnknownTargetError, ReleaseError, InputError: there is no such target.
        TargetFault, ConfigRefused: it does not start, or accepts no configuration.
    """
    set_hypothesis_home()
    with opened(
        options.spec,
        step_limit=options.step_limit,
        memory_limit=options.memory_limit,
        offline=options.offline,
        report=notice,
        folder=options.folder,
        imports=options.imports,
    ) as there:
        gate = GateContext(options, there.target, report, there.stderr, deviations)
        return judge(gate), gate.results
