"""Serve the page of a run by hand, on this machine only. The server keeps the run; the page
shows the data that `view` returns."""

import secrets
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from threading import Lock
from typing import Annotated, Any, NamedTuple

import msgspec

from ....model.errors import InputError
from ....model.scenario import Request, Scenario
from ....properties.explanations.measures import VOLUME, Measure, measures
from ...console.output import (
    config_line,
    fail,
    json_line,
    last_lines,
    load_words,
    one_line,
    partition_words,
)
from ...console.step_lines import step_line
from ...files.scenario_file import FileError, scenario_json, scenario_of
from ..base.page import content_security_policy, render_page
from ..base.words import QUEUES, progress, queues
from .run import MAX_TOKENS, ByHand, NotNow, Taken

KINDS = ("padding", "cached", "prompt", "generated")
MAX_ALONE = 24  # in rows of at most this many blocks, each block is drawn by itself


class Cell(NamedTuple):
    """Identical blocks in a row: their number, and the tokens of each kind in one of them."""

    blocks: int
    tokens: tuple[tuple[str, int], ...]


def cells(padding: int, cached: int, prompt: int, generated: int, block_size: int) -> list[Cell]:
    """Return the row of a request as cells. In a long row, identical neighbouring blocks form one
    cell.

    `padding` is in blocks. The other lengths are in tokens whose KV is computed.
    """
    lengths = (padding * block_size, cached, prompt, generated)
    row = list(_blocks(lengths, block_size))
    if len(row) <= MAX_ALONE:
        return [Cell(1, tokens) for tokens in row]
    return [Cell(len(list(alike)), tokens) for tokens, alike in groupby(row)]


def _blocks(lengths: tuple[int, ...], block_size: int) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield the number of tokens of each kind, block by block."""
    remaining = dict(zip(KINDS, lengths, strict=True))
    while any(remaining.values()):
        room = block_size
        held = []
        for kind in KINDS:
            taken = min(room, remaining[kind])
            if taken:
                held.append((kind, taken))
                remaining[kind] -= taken
                room -= taken
        yield tuple(held)


SHOWN_STEPS = 100
REPLAY = "schedproof replay by-hand.json"


def view(run: ByHand, options: str) -> dict[str, Any]:
    setup, session = run.setup, run.session
    history = session.monitor.history
    return {
        "title": f"{session.started.name} {session.started.version}, step by step",
        "config": config_line(setup.system, setup.revision, setup.config),
        "next": run.clients.steps,
        "requests": [_request(run, request) for request in run.clients.requests],
        "queues": [[name, members] for name, members in queues(history).items()],
        "tkv": None if history.last is None else history.last.tkv,
        "measures": [[*measure] for measure in _measures(run)],
        "chart": _chart(run),
        "block_size": setup.config["block_size"],
        "last": _last(run),
        "log": [_line(run, taken) for taken in run.taken[-SHOWN_STEPS:]],
        "left_out": max(0, len(run.taken) - SHOWN_STEPS),
        "verdict": verdict(run),
        "broken": run.first_broken is not None,
        "ended": run.ended,
        "fault": None if run.fault is None else one_line(run.fault),
        "details": _details(run),
        "notice": run.notice,
        "can_undo": run.can_undo,
        "can_abort": not session.cannot_abort,
        "has_connector": bool(setup.config.get("kv_connector")),
        "has_priorities": setup.config.get("policy") == "priority",
        "replay": REPLAY + options,
    }


def verdict(run: ByHand) -> str:
    first = run.first_broken
    if run.fault is not None:
        return f"no verdict: {one_line(run.fault)}"
    if first is not None:
        word = "ADAPTER: " * first.by_adapter
        return one_line(f"{word}{first.rule} is broken in step {first.step}: {first.message}")
    staked = {rule for taken in run.taken for rule in taken.exercised}
    if not staked:
        return "no rule has been exercised yet"
    return f"no rule is broken; {len(staked)} of {len(run.session.checked)} rules were exercised"


def _measures(run: ByHand) -> list[Measure]:
    """Return how much of each limit the last step used. The volume is that of the last decode
    step."""
    config = run.setup.config
    reported = measures(run.session.monitor.history.last, config)
    decodes = [
        taken for taken in run.taken if taken.step is not None and taken.step.kind == "decode"
    ]
    if decodes and decodes[-1] is not run.taken[-1]:
        for measure in measures(decodes[-1].step, config):
            if measure.name == VOLUME:
                reported.insert(0, measure._replace(name=f"{VOLUME} in step {decodes[-1].number}"))
    return reported


def _chart(run: ByHand) -> dict[str, Any]:
    shown = run.taken[-SHOWN_STEPS:]
    of_steps = [
        {measure.name: measure for measure in measures(taken.step, run.setup.config)}
        for taken in shown
    ]
    latest = {name: measure for of_step in of_steps for name, measure in of_step.items()}
    lines = [
        {
            "name": name,
            "limit": measure.limit,
            "unit": measure.unit,
            "values": [step[name].value if name in step else None for step in of_steps],
        }
        for name, measure in latest.items()
    ]
    broken = [taken.number for taken in shown if taken.broken]
    return {"first": shown[0].number if shown else 0, "lines": lines, "broken": broken}


def _request(run: ByHand, request: Request) -> dict[str, Any]:
    name, history = request.id, run.session.monitor.history
    account = history.requests.get(name)
    coming = request.arrival == run.clients.steps
    refused = run.session.rejected.get(name)
    words = f"prompt {request.prompt_len}"
    if len(request.prompt) > 1 or request.prompt[0][0] != name:
        words += f" ({' + '.join(f'{stream} {length}' for stream, length in request.prompt)})"
    words += f", max_tokens {request.max_tokens}"
    words += f", priority {request.priority}" if request.priority else ""
    words += partition_words(request) + load_words(request)
    reported: dict[str, Any] = {"id": name, "asked": words, "here": coming or name in history.live}
    reported["plans"] = _plans(run, request)
    if refused is not None:
        reported["where"] = one_line(f"refused: {refused}")
    elif account is None:
        later = request.arrival > run.clients.steps
        late = f"arrives before step {request.arrival}" if later else "was never taken"
        reported["where"] = "arrives before the next step" if coming else late
    else:
        reported["where"] = "has left" if account.ended else _queue(run, name)
        reported["progress"] = progress(history, name)
        if not account.ended:
            padding = run.padding.get(name, 0) if account.computed else 0
            cached = min(account.prefix_hit, account.computed)
            prompt = min(account.computed, account.prompt) - min(cached, account.prompt)
            reported["cells"] = cells(
                *(max(0, padding), cached, prompt),
                max(0, account.computed - account.prompt),
                run.setup.config["block_size"],
            )
    return reported


def _queue(run: ByHand, name: str) -> str:
    queued = queues(run.session.monitor.history)
    return next((queue for queue in reversed(QUEUES) if name in queued.get(queue, ())), "unlisted")


def _plans(run: ByHand, request: Request) -> list[str]:
    plans = []
    account = run.session.monitor.history.live.get(request.id)
    if request.abort_at == run.clients.steps:
        plans.append(
            f"will be aborted {'inside' if request.abort_inside else 'before'} the next step"
        )
    emitted = account.emitted if account is not None else 0
    is_here = account is not None or request.arrival == run.clients.steps
    if is_here and request.output_len is not None and request.output_len == emitted + 1:
        plans.append("its next token is EOS")
    return plans


def _last(run: ByHand) -> dict[str, Any] | None:
    if not run.taken:
        return None
    taken = run.taken[-1]
    titles = {rule.id: rule for rule in run.setup.rules}
    first = run.first_broken
    return {
        "line": _words(run, taken),
        "broken": [
            [
                failure.rule,
                titles[failure.rule].title,
                titles[failure.rule].statement,
                one_line(failure.message),
            ]
            for failure in taken.broken
        ],
        "after": first is not None and bool(taken.broken) and taken.broken[0] is not first,
        "exercised": [
            [rule.id, rule.title] for rule in run.setup.rules if rule.id in taken.exercised
        ],
    }


def _line(run: ByHand, taken: Taken) -> dict[str, Any]:
    return {"line": _words(run, taken), "broken": [failure.rule for failure in taken.broken]}


def _words(run: ByHand, taken: Taken) -> str:
    if taken.step is None:
        return f"step {taken.number:>5} no answer"
    before = run.taken[taken.number - 1].step if taken.number else None
    return step_line(taken.number, taken.step, before, run.setup.config)


def _details(run: ByHand) -> list[str]:
    text = (run.session.details or run.setup.stderr()) if run.ended else ""
    return last_lines(text)


HOST = "127.0.0.1"
MAX_BODY = 256 * 1024  # bytes; enough for a scenario
PATIENCE = 10.0  # seconds of silence in a request after which the connection is closed
FILE = "by-hand.json"
NOTHING = "default-src 'none'"  # the content security policy of all answers except the page

Amount = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]


class Arrive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a move: the request that arrives, with lengths in tokens."""

    prompt: Tokens
    max_tokens: Tokens
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0
    shared: Amount = 0
    external_tokens: Amount = 0
    load_steps: Amount = 0
    load_fails_at: Amount | None = None
    send_steps: Amount | None = None


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a move: the request whose next token becomes EOS."""

    id: str


class Abort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a move: the request to abort."""

    id: str
    inside: bool = False


class Steps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a move: how many steps to take, up to the first that breaks a rule."""

    count: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a move: the content of the scenario file to load."""

    scenario: dict[str, Any]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a move that takes none."""


def _scenario(data: dict[str, Any]) -> Scenario:
    try:
        return scenario_of(data, "the scenario")
    except FileError as error:
        raise NotNow(str(error)) from None


Move = tuple[type[msgspec.Struct], Callable[[ByHand, Any], None]]
MOVES: dict[str, Move] = {
    "/arrive": (
        Arrive,
        lambda run, move: run.arrive(**msgspec.structs.asdict(move)),
    ),
    "/end": (End, lambda run, move: run.end(move.id)),
    "/abort": (Abort, lambda run, move: run.abort(move.id, move.inside)),
    "/step": (Steps, lambda run, move: run.step(move.count)),
    "/load": (Load, lambda run, move: run.load(_scenario(move.scenario))),
    "/undo": (Nothing, lambda run, _: run.undo()),
    "/restart": (Nothing, lambda run, _: run.restart()),
}


class Server(ThreadingHTTPServer):
    """Serve one run. One HTTP request at a time can change it.

    Other users of this machine can connect too. So all paths begin with a secret, which is part of
    the printed address.
    """

    request_queue_size = 64  # a browser may open many connections at the same time
    daemon_threads = True
    block_on_close = False

    def __init__(self, run: ByHand, options: str, port: int) -> None:
        self.run = run
        self.options = options
        self.lock = Lock()
        self.secret = secrets.token_urlsafe(16)
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise InputError(
                "--port", f"{port}: {why}; valid: another port, or 0 for any free port"
            ) from None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.secret}/"

    def names(self) -> frozenset[str]:
        """The host names of this server. A request to any other name comes from another site's
        page."""
        return frozenset(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            fail(f"{type(error).__name__}: {error}")


class Handler(BaseHTTPRequestHandler):
    """One HTTP request to the server."""

    server: Server
    server_version, sys_version = "schedproof", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        path = self._path()
        if path is None:
            return
        with self.server.lock:
            shown = view(self.server.run, self.server.options)
            scenario = self.server.run.scenario()
        if path == "/":
            page = render_page("step", shown, connect="'self'").encode()
            allowed = content_security_policy("step", connect="'self'")
            self._answer(HTTPStatus.OK, page, "text/html; charset=utf-8", allowed=allowed)
        elif path == "/state":
            self._answer(HTTPStatus.OK, json_line(shown), "application/json")
        elif path == "/scenario" and not scenario.requests:
            self._refuse(HTTPStatus.CONFLICT, "no request has arrived yet, so there is no scenario")
        elif path == "/scenario":
            saved = scenario_json(scenario).encode()
            self._answer(HTTPStatus.OK, saved, "application/json", FILE)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, f"{path!r:.60}; valid: /, /state, /scenario")

    def do_POST(self) -> None:
        path = self._path()
        if path is None:
            return
        if path not in MOVES:
            valid = ", ".join(MOVES)
            self._refuse(HTTPStatus.NOT_FOUND, f"{path!r:.60}; valid: {valid}")
            return
        body = self._body()
        if body is None:
            return
        words, move = MOVES[path]
        try:
            command = msgspec.json.decode(body, type=words)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"{path}: {error}")
            return
        with self.server.lock:
            try:
                move(self.server.run, command)
            except NotNow as error:
                self._refuse(HTTPStatus.BAD_REQUEST, str(error))
                return
            shown = view(self.server.run, self.server.options)
        self._answer(HTTPStatus.OK, json_line(shown), "application/json")

    def log_message(self, *_: Any) -> None:
        """Print nothing: the browser's requests do not belong in the terminal."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.close_connection = True
        self._refuse(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _path(self) -> str | None:
        """Return the path after the secret. Refuse a request that does not come from the server's
        page.

        A page of another site can send requests here in two ways. It can submit a form; the Origin
        header reveals this. Or it can make its own host name resolve to this machine (DNS
        rebinding); the Host header reveals this. Another user of this machine does not know the
        secret.
        """
        names = self.server.names()
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        valid = ", ".join(sorted(names))
        if len(hosts) != 1 or hosts[0] not in names:
            self._refuse(HTTPStatus.FORBIDDEN, f"Host {', '.join(hosts)!r:.60}; valid: {valid}")
        elif len(origins) > 1 or not {f"http://{name}" for name in names}.issuperset(origins):
            self._refuse(HTTPStatus.FORBIDDEN, f"Origin {', '.join(origins)!r:.60}; valid: {valid}")
        elif not secrets.compare_digest(
            self.path[: len(self.server.secret) + 2].encode(), f"/{self.server.secret}/".encode()
        ):
            self._refuse(HTTPStatus.FORBIDDEN, "valid: the address that schedproof step printed")
        else:
            return self.path[len(self.server.secret) + 1 :]
        return None

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
            return None
        if len(length) > 9 or int(length) > MAX_BODY:
            why = f"the body has {length:.20} bytes; valid: at most {MAX_BODY}"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
            return None
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.BAD_REQUEST, "Content-Type; valid: application/json")
            return None
        return self.rfile.read(int(length))

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, f"{one_line(why)}\n".encode(), "text/plain; charset=utf-8")

    def _answer(
        self,
        status: HTTPStatus,
        data: bytes,
        kind: str,
        file: str | None = None,
        allowed: str = NOTHING,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if file is not None:
            self.send_header("Content-Disposition", f'attachment; filename="{file}"')
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", f"{allowed}; frame-ancestors 'none'")
        self.end_headers()
        self.wfile.write(data)
