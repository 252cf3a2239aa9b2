"""`schedproof step`: step a scheduler by hand, in a browser on this machine."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from ...model.errors import InputError
from ...model.systems import config_keys, full_config
from ...properties.rules.registry import LOCKSTEP
from ...spec.catalogue import load
from ..console import CONFORMS, output
from ..console.option_checks import between, check_choice, resolved_revision
from ..corpus.folder import scenario_named
from ..targets.factory import opened
from ..targets.scales import scales_of
from ..targets.target_spec import MEMORY_LIMIT, replay_options
from ..web.step.run import ByHand, NotNow, StepSetup
from ..web.step.server import Server
from . import options
from .options import named_target

PRODUCTION = "production"
SCALES = ("small", "short", "tight", PRODUCTION)


def command(
    context: typer.Context,
    target: options.TargetOption = "model",
    system: options.SystemOption = None,
    revision: options.RevisionOption = None,
    scale: Annotated[
        str,
        typer.Option(
            help=(
                "small, short or tight: use this scale of the gate; production: use the system's "
                "defaults"
            )
        ),
    ] = "small",
    scenario: Annotated[
        str | None,
        typer.Option(help="start with the requests of this scenario (a file or a built-in one)"),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--config", help="set a configuration KEY; repeat the option to add more keys"
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="port on 127.0.0.1 that serves the page; 0 takes any free port")
    ] = 0,
    step_limit: options.StepLimit = 10.0,
    memory_limit: options.MemoryLimit = MEMORY_LIMIT,
    offline: options.Offline = False,
    path: options.CheckoutPath = None,
    beyond_start_up: options.BeyondStartUp = False,
) -> None:
    """Step a scheduler by hand: add, end or abort requests, and watch what it does."""
    spec = named_target(context, target, path, beyond_start_up=beyond_start_up)
    begun = None if scenario is None else scenario_named(scenario)
    if system is None:
        system = spec.default_system if begun is None else begun.system
    if revision is None and begun is not None and system == begun.system:
        revision = begun.revision
    resolved = resolved_revision(system, revision, spec.default_revision())
    between("--port", port, 0, 65535)
    config = configured(system, resolved, scale, changes or ())
    is_model = spec.is_model  # comparing the model with itself proves nothing
    rules = [rule for rule in load(system, resolved) if not (is_model and rule.id == LOCKSTEP)]
    options = replay_options(spec, None, step_limit, memory_limit)
    console = output.make_console()
    with opened(
        spec,
        step_limit=step_limit,
        memory_limit=memory_limit,
        offline=offline,
        report=output.notice(console),
    ) as open_target:
        run = ByHand(
            StepSetup(open_target.target, system, resolved, config, rules, open_target.stderr)
        )
        if begun is not None:
            try:
                run.load(begun)
            except NotNow as error:
                raise InputError("--scenario", str(error)) from None
        else:
            run.show_example()
        with Server(run, options, port) as server:
            line = output.config_line(system, resolved, run.setup.config)
            output.say(console, f"step {line}")
            console.print(f"at {server.address} (Ctrl-C ends)", markup=False)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                console.print("ended")
    raise typer.Exit(CONFORMS)


def configured(system: str, revision: str, scale: str, changes: Sequence[str]) -> dict[str, Any]:
    check_choice("--scale", scale, SCALES)
    values: dict[str, Any] = {} if scale == PRODUCTION else {**scales_of(system).scales[scale]}
    for change in changes:
        key, sign, value = change.partition("=")
        if not sign or not key:
            valid = ", ".join(config_keys(system, revision))
            raise InputError("--config", f"{change!r}; valid: KEY=VALUE with KEY one of {valid}")
        values[key] = _value(value)
    try:
        return full_config(system, revision, values)
    except InputError as error:
        where = error.path.removeprefix("$.config.")
        raise InputError("--config", f"{where}: {error.problem}") from None


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
