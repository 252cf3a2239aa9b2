"""Does the server of `schedproof step` survive any request?

Sends corrupted requests, and requests as from other sites, while silent connections stay open. Each
request must be answered or dropped:

    make tool NAME=hostile.server OPTIONS="--requests 2000"
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from .mutations import corrupt
from .processes import begin, survivors
from .report import finish, parser, went_wrong

PATIENCE = 5.0  # seconds to wait for an answer
MOVES = ("/arrive", "/step", "/abort", "/end", "/undo", "/restart")
READS = ("/", "/state", "/scenario")
NOT_THERE = (
    *("/../../../../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/state/../../x", "/%00"),
    *("http://evil.example/state", "*", "/" + "a" * 9_000, "/state?x=<script>", "/\x1b[2J"),
)
BODIES = (b'{"prompt": 6, "max_tokens": 5}', b'{"id": "r0"}', b"{}")
HOSTS = ("evil.example", "127.0.0.1", "[::1]:{port}", "", "localhost:{port}\r\nHost: evil.example")
ORIGINS = ("http://evil.example", "null", "http://127.0.0.1:1", "file://")


def request(port: int, secret: str, seed: int) -> tuple[bytes, str]:
    """Return a request, and the most that it may achieve: "moves" if it looks as if the page
    itself had sent it."""
    dice = random.Random(seed)
    method = dice.choice((*("POST",) * 6, *("GET",) * 3, "PUT", "HEAD", "TRACE", "\x00"))
    path = dice.choice((*NOT_THERE, *(MOVES if method == "POST" else READS) * 4))
    own = dice.random() < 0.6
    path = path if dice.random() < 0.1 else f"/{secret}{path}"
    host = f"127.0.0.1:{port}" if own else dice.choice(HOSTS).format(port=port)
    body = dice.choice(BODIES) if method == "POST" or dice.random() < 0.2 else b""
    if dice.random() < 0.6:
        body = corrupt(body or b"{}", seed, packed=False)
    length = dice.choice((str(len(body)),) * 4 + ("-1", "9" * 20, "0x10", str(len(body) + 9)))
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {length}"]
    lines.append(f"Content-Type: {dice.choice(('application/json',) * 3 + ('text/plain', 'x'))}")
    if not own and dice.random() < 0.5:
        lines.append(f"Origin: {dice.choice(ORIGINS)}")
    if dice.random() < 0.1:
        lines += [f"X-{number}: {'y' * 700}" for number in range(dice.choice((1, 200)))]
    if own and dice.random() < 0.1:
        lines.append(dice.choice(("Host: evil.example", "Origin: http://evil.example")))
        own = False
    whole = "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body
    if dice.random() < 0.1:
        whole = corrupt(whole, seed, packed=False)
    return whole, "own" if own else "foreign"


def response(port: int, whole: bytes) -> bytes:
    """Send these bytes and return the server's answer, or nothing if the server closes the
    connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        with suppress(OSError):
            client.sendall(whole)
            client.shutdown(socket.SHUT_WR)
        reply = b""
        with suppress(ConnectionError):
            while data := client.recv(1 << 16):
                reply += data
        return reply


def judged(whole: bytes, whose: str, reply: bytes) -> tuple[str, str | None]:
    """Return the status of an answer, and its fault if it has one."""
    status = reply[9:12].decode(errors="replace") if reply.startswith(b"HTTP/1.") else "none"
    if b"Traceback" in reply or b"root:" in reply:
        return status, f"says {reply[-200:]!r}"
    host = re.search(rb"\r\nHost: ([^\r]*)", whole)
    name = host[1] if host is not None else b"127.0.0.1:"
    foreign = b"127.0.0.1:" not in name and not name.startswith(b"localhost:")
    foreign |= whole.count(b"\nHost: ") > 1 or b"\nOrigin: http://evil" in whole
    if status == "200" and whose == "foreign" and foreign:
        return status, f"accepted: {whole[:200]!r}"
    if status not in ("none", "200", "304") and not "400" <= status < "506":
        return status, f"status {status}"
    return status, None


def main() -> int:
    options = parser(__doc__, requests=20_000).parse_args()
    began, wrong, counts = time.monotonic(), list[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        folder, mark = Path(place), f"server-{os.getpid()}"
        process = begin(("step", "--system", "vllm"), folder, mark)
        try:
            port, secret = _address(folder)
            idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]  # silent
            slowest = 0.0
            for seed in range(options.seed * 10**6, options.seed * 10**6 + options.requests):
                whole, whose = request(port, secret, seed)
                at = time.monotonic()
                try:
                    status, fault = judged(whole, whose, response(port, whole))
                except TimeoutError:
                    status, fault = "none", f"no answer in {PATIENCE} s to {whole[:200]!r}"
                slowest = max(slowest, time.monotonic() - at)
                counts[status] += 1
                wrong += [f"request {seed}: {fault}"] if fault is not None else []
            state = response(
                port, f"GET /{secret}/state HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
            )
            json.loads(state.partition(b"\r\n\r\n")[2])
            memory = _megabytes(process)
            for client in idle:
                client.close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        printed = (folder / "err.txt").read_text(errors="replace")
        wrong += [f"on stderr: {printed[-300:]!r}"] if printed else []
        wrong += [f"still there: {survivor}" for survivor in survivors(mark)]
    lines = ["| answer | requests |", "|---|---|"]
    lines += [f"| {status} | {count:,} |" for status, count in sorted(counts.items())]
    seconds = f"{time.monotonic() - began:.0f} s"
    about = f"The attack sent {options.requests:,} requests in {seconds}, while it held 50 idle "
    about += f"connections open (seed {options.seed}). The slowest answer took {slowest:.2f} s, "
    about += f"and the server used {memory} MB."
    lines += ["", f"{about} {went_wrong(len(wrong), 'request')}"]
    return finish("server", lines, wrong, write=options.write)


def _address(folder: Path) -> tuple[int, str]:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = re.search(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/", (folder / "out.txt").read_text())
        if found:
            return int(found[1]), found[2]
        time.sleep(0.05)
    raise TimeoutError("the server does not start")


def _megabytes(process: "subprocess.Popen[bytes]") -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", text)
    return int(found[1]) >> 10 if found else 0


if __name__ == "__main__":
    sys.exit(main())
