"""Serve the page of a run by hand, on this machine only. The server holds the run, and the page
shows it.
"""

import secrets
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Annotated, Any

import msgspec

from ....model.errors import InputError
from ....model.scenario import Scenario
from ...console.output import fail, json_line, one_line
from ...files.scenario_file import FileError, scenario_json, scenario_of
from ..base.page import content_security_policy, render_page
from .run import MAX_TOKENS, ByHand, NotNow
from .view import view

HOST = "127.0.0.1"
MAX_BODY = 256 * 1024  # bytes; enough for a scenario
PATIENCE = 10.0  # seconds within which a request must arrive completely
FILE = "by-hand.json"
NOTHING = "default-src 'none'"  # the policy of answers that are no page

Amount = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]


class Arrive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a move: the request that arrives; lengths are in tokens."""

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
    """The arguments of a move that has none."""


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
    """Serves one run, which only one request at a time can change. Other users of this machine can
    connect, so all paths begin with a secret, which is part of the printed address."""

    request_queue_size = 64  # a browser may open many connections at once
    daemon_threads = True
    block_on_close = False

    def __init__(self, run: ByHand, options: str, port: int) -> None:
        """Bind the port, or any free one for 0; `options` are as for `view`."""
        self.run = run
        self.options = options
        self.lock = Lock()
        self.secret = secrets.token_urlsafe(16)
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise InputError(
                "--port", f"{port}: {why}; valid: another port, or 0 for any free one"
            ) from None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.secret}/"

    def names(self) -> frozenset[str]:
        """Return the host names by which clients on this machine reach the server. If a request has
        another host name, it comes from a page of another site."""
        return frozenset(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            fail(f"{type(error).__name__}: {error}")


class Handler(BaseHTTPRequestHandler):
    """One request to the server."""

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
        """Print nothing, because requests of the browser do not belong in the terminal."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error of http.server in one line, like all other errors."""
        self.close_connection = True
        self._refuse(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _path(self) -> str | None:
        """Return the path after the secret, or refuse a request that is not from the server's page.

        A page of another site can send requests here in two ways: by a form, which the Origin
        header reveals, or under a host name of its own that resolves to this machine, which the
        Host header reveals. Another user does not know the secret.
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
        """Return the body of the request, or None if it was refused."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
            return None
        if len(length) > 9 or int(length) > MAX_BODY:
            why = f"the body has {length:.20} bytes; valid: {MAX_BODY} at most"
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
