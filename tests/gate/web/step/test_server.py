"""The server of a run by hand: moves over a socket, and what is kept out."""

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from typing import Any

import pytest

from schedproof.gate.files.scenario_file import scenario_of
from schedproof.gate.web.step.server import MAX_BODY, Server
from schedproof.model.errors import InputError

from .by_hand import Crashes, by_hand

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def server():
    """A server on a free port of this machine."""
    yield from served(Server(by_hand(), "", 0))


def served(started):
    thread = threading.Thread(target=started.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield started
    finally:
        started.shutdown()
        thread.join()
        started.server_close()


def ask(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    words = {key.replace("_", "-"): value for key, value in headers.items()}
    connection.request(
        method, f"/{server.secret}{path}", data, (JSON if data is not None else {}) | words
    )
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text, reply


def move(server, path, **words):
    status, text, _ = ask(server, "POST", path, words)
    assert status == 200, text
    view: dict[str, Any] = json.loads(text)
    return view


def test_a_run_over_the_socket_from_arrival_to_scenario(server):
    move(server, "/arrive", prompt=6, max_tokens=5)
    move(server, "/step")
    assert move(server, "/end", id="r0")["requests"][0]["plans"] == ["its next token is EOS"]
    reported = move(server, "/step")
    assert reported["requests"][0]["where"] == "has left"
    assert "finished {r0 eos}" in reported["last"]["line"]
    move(server, "/arrive", prompt=9, max_tokens=5, shared=4)
    move(server, "/step")
    move(server, "/abort", id="r1", inside=True)
    reported = move(server, "/step")
    assert reported["requests"][1]["where"] == "has left"
    assert reported["next"] == 4
    assert move(server, "/undo")["next"] == 3
    status, text, reply = ask(server, "GET", "/scenario")
    assert status == 200
    assert reply.getheader("Content-Disposition") == 'attachment; filename="by-hand.json"'
    saved = scenario_of(json.loads(text), "saved")
    assert [request.output_len for request in saved.requests] == [2, None]
    assert (saved.requests[1].abort_at, saved.requests[1].abort_inside) == (3, True)
    reported = move(server, "/restart")
    assert (reported["next"], reported["requests"]) == (0, [])
    assert ask(server, "GET", "/scenario")[:2] == (
        409,
        "no request has arrived yet, so there is no scenario\n",
    )


def test_a_request_may_say_what_a_connector_has_of_it():
    keys = {"kv_connector": True, "kv_load_failure_policy": "fail", "block_size": 4}
    run = by_hand(system="vllm", **keys)
    with contextmanager(served)(Server(run, "", 0)) as server:
        move(
            server,
            "/arrive",
            **{"prompt": 9, "max_tokens": 2, "external_tokens": 8, "load_steps": 1},
            **{"load_fails_at": 4, "send_steps": 2},
        )
        first = move(server, "/step")
        assert first["has_connector"]
        assert dict(first["queues"])["parked"] == ["r0"]
        assert first["requests"][0]["where"] == "parked"
        asked = "8 tokens are loaded after 1 step, the load fails from token 4 on"
        assert asked in first["requests"][0]["asked"]
        assert "finished {r0 error}" in move(server, "/step")["last"]["line"]
        status, text, _ = ask(
            server, "POST", "/arrive", {"prompt": 4, "max_tokens": 1, "external_tokens": 5}
        )
        assert (status, text) == (400, "load 5; valid: 0 to 4, the length of the prompt\n")


def test_the_page_loads_nothing_and_may_not_be_framed(server):
    status, text, reply = ask(server, "GET", "/")
    assert status == 200
    assert "step by step" in text
    policy = reply.getheader("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.getheader("Cache-Control") == "no-store"
    assert reply.getheader("Access-Control-Allow-Origin") is None
    assert json.loads(ask(server, "GET", "/state")[1])["next"] == 0


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/arrive", b"", "/arrive: Input data was truncated"),
        ("/arrive", b"{", "/arrive: Input data was truncated"),
        ("/arrive", b"\xff\xfe", "/arrive: JSON is malformed"),
        ("/arrive", b"[" * 10_000, "/arrive: "),
        ("/arrive", b"[]", "/arrive: Expected `object`, got `array`"),
        ("/arrive", b"{}", "/arrive: Object missing required field `prompt`"),
        ("/arrive", {"prompt": 0, "max_tokens": 1}, "/arrive: Expected `int` >= 1"),
        ("/arrive", {"prompt": 10**9, "max_tokens": 1}, "/arrive: Expected `int` <= 131072"),
        ("/arrive", {"prompt": 1.5, "max_tokens": 1}, "/arrive: Expected `int`, got `float`"),
        ("/arrive", {"prompt": 1, "max_tokens": 1, "x": 1}, "/arrive: Object contains unknown"),
        ("/arrive", {"prompt": 1, "max_tokens": 1, "shared": 2}, "shared 2; valid: 0 to 1"),
        ("/abort", {"id": "r7"}, "'r7' is not an unfinished request; valid: none yet"),
        ("/end", {"id": "<b>\r\n"}, "'<b>\\r\\n' is not an unfinished request"),
        ("/undo", {}, "there is no move to undo"),
        ("/step", {"n": 3}, "/step: Object contains unknown field `n`"),
        ("/step", {"count": 0}, "/step: Expected `int` >= 1"),
        ("/step", {"count": 10**9}, "/step: Expected `int` <= 100"),
        ("/load", {"scenario": []}, "/load: Expected `object`, got `array`"),
        ("/load", {"scenario": {}}, "the scenario: $.format: null; supported: "),
    ],
)
def test_a_bad_body_is_one_line_and_changes_nothing(server, path, body, message, capfd):
    before = ask(server, "GET", "/state")[1]
    status, text, reply = ask(server, "POST", path, body)
    assert (status, text.count("\n")) == (400, 1), text
    assert text.startswith(message)
    assert (reply.getheader("Content-Type") or "").startswith("text/plain")
    assert ask(server, "GET", "/state")[1] == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1.evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
    ],
)
def test_who_was_led_here_by_a_foreign_page_is_refused(server, method, headers):
    named = {key: value.format(port=server.server_port) for key, value in headers.items()}
    path, body = ("/state", None) if method == "GET" else ("/restart", {})
    status, text, _ = ask(server, method, path, body, **named)
    assert status == 403
    assert text.count("\n") == 1
    assert f"valid: 127.0.0.1:{server.server_port}, localhost:{server.server_port}" in text
    assert server.secret not in text


@pytest.mark.parametrize("again", ["Host: 127.0.0.1:PORT", "Host: evil", "Origin: http://evil"])
def test_a_second_header_is_refused(server, again):
    lines = (f"GET /{server.secret}/state HTTP/1.1", "Host: 127.0.0.1:PORT")
    own = "Origin: http://127.0.0.1:PORT"
    reply = raw(server, "\r\n".join((*lines, own, again, "", "")))
    assert reply.split()[1] == "403"


@pytest.mark.parametrize("secret", ["", "/x", "/é", "/" + "x" * 22])
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/state"), ("POST", "/step")])
def test_another_user_of_the_machine_cannot_guess_the_address(server, method, path, secret):
    reply = raw(server, f"{method} {secret}{path} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n")
    assert reply.split()[1] == "403"
    assert server.secret not in reply


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_its_own_names_are_let_in(server, name):
    own = f"{name}:{server.server_port}"
    words = {"Host": own, "Origin": f"http://{own}"}
    assert ask(server, "POST", "/restart", {}, **words)[0] == 200


def raw(server, text):
    """What the server says to these bytes; it may end before they are all sent."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as client:
        client.sendall(text.replace("PORT", str(server.server_port)).encode())
        return client.makefile("rb").read().decode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (f"Content-Length: {MAX_BODY + 1}", "413"),
        ("Content-Length: 99999999999999999999", "413"),
        ("Content-Length: -1", "411"),
        ("Content-Length: ²", "411"),
        ("X: y", "411"),
        ("Content-Type: text/plain\r\nContent-Length: 2", "400"),
    ],
)
def test_a_body_that_is_too_long_or_of_no_length_is_not_read(server, headers, status):
    kind = "" if "Content-Type" in headers else "Content-Type: application/json\r\n"
    first = f"POST /{server.secret}/restart HTTP/1.1\r\nHost: 127.0.0.1:PORT"
    reply = raw(server, f"{first}\r\n{kind}{headers}\r\n\r\n")
    head, _, body = reply.partition("\r\n\r\n")
    assert head.split()[1] == status, reply
    assert body.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "PUT / HTTP/1.1\r\nHost: x\r\n\r\n"]
)
def test_what_is_no_request_is_answered_in_a_line(server, text, capfd):
    reply = raw(server, text)
    assert reply
    assert "Traceback" not in reply
    assert "<" not in reply
    assert capfd.readouterr() == ("", "")
    assert ask(server, "GET", "/state")[0] == 200


def test_unknown_places_are_named_with_those_that_are_there(server):
    assert ask(server, "GET", "/etc/passwd")[0] == 404
    status, text, _ = ask(server, "POST", "/nothing", {})
    assert (status, text) == (
        404,
        "'/nothing'; valid: /arrive, /end, /abort, /step, /load, /undo, /restart\n",
    )


def test_it_listens_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_line(server):
    with pytest.raises(InputError, match=r"--port: .*in use; valid: another port, or 0") as error:
        Server(by_hand(), "", server.server_port)
    assert "\n" not in str(error.value)


def test_a_target_that_crashes_is_shown_and_the_server_goes_on():
    for server in served(Server(by_hand(Crashes()), "", 0)):
        move(server, "/arrive", prompt=6, max_tokens=5)
        move(server, "/step")
        reported = move(server, "/step")
        assert reported["last"]["broken"][0][:2] == ["ALL-R01", "never crashes"]
        assert reported["ended"] is True
        assert ask(server, "POST", "/step", {})[:2] == (
            400,
            "the run has ended; valid: undo, or start over\n",
        )
        assert move(server, "/restart")["ended"] is False
