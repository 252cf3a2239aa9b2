"""Sessions: requests with several turns. Their inputs are sent as a client would send them.

Source: AsyncLLM._add_streaming_input_request, which sends each input as a resumable request, all
with the same id. After the last input, it sends a request that is not resumable.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ..protocol_checks import Output, RefusedError, Turn

KEY = "streaming_inputs"


class Session:
    """A session: the output of the current turn, the outputs of turns already sent, and the
    turns left to send."""

    def __init__(self, first: Output, turns: tuple[Turn, ...]) -> None:
        self.output = first
        self.sent: deque[Output] = deque()
        self.left = deque(turns)
        self.waited = 0


class Sending(NamedTuple):
    """How to send an input. `turn` creates a resumable request, `end` creates the request that
    ends a session, and `add` passes a request to the scheduler. `begins` is called when a turn that
    was sent begins."""

    turn: Callable[[str, Turn], Any]
    end: Callable[[str], Any]
    add: Callable[[Any], None]
    begins: Callable[[str], None]


class Sessions:
    """The unfinished sessions, by id."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._sessions: dict[str, Session] = {}

    def begin(self, name: str, first: Output, turns: tuple[Turn, ...]) -> None:
        """Register a session whose first input has been sent, and send the further inputs that
        arrive at the same time."""
        self._sessions[name] = Session(first, turns)
        self._send(name, self._sessions[name])

    def step(self, requests: Any) -> None:
        """Send the inputs that are due before a step."""
        for name, session in list(self._sessions.items()):
            if name not in requests:
                del self._sessions[name]
            elif requests[name].status.name == "WAITING_FOR_STREAMING_REQ":
                if session.waited == session.left[0].delay:
                    self._next(name, session)
                    self._begin(name, session)
                    self._send(name, session)
                else:
                    session.waited += 1

    def output(self, name: str) -> Output | None:
        """Return the output of a session's current turn, or None if the request is not a
        session."""
        session = self._sessions.get(name)
        return None if session is None else session.output

    def turns_end(self, completion: Any, requests: Any) -> set[str]:
        """Return the sessions in which a turn ends in this step. A session continues after a turn,
        so remove the turn's finish reason from the outputs."""
        ended = set()
        for client in completion.values():
            for output in client.outputs:
                session = self._sessions.get(output.request_id)
                ends = output.finish_reason is not None and output.request_id in requests
                if session is None or not ends or requests[output.request_id].is_finished():
                    continue
                output.finish_reason = None
                ended.add(output.request_id)
                if session.sent:
                    self._begin(output.request_id, session)
        return ended

    def _send(self, name: str, session: Session) -> None:
        while session.left and session.left[0].delay is None:
            self._next(name, session)
        if not session.left:
            self._sending.add(self._sending.end(name))

    def _begin(self, name: str, session: Session) -> None:
        session.output = session.sent.popleft()
        self._sending.begins(name)

    def _next(self, name: str, session: Session) -> None:
        turn = session.left.popleft()
        session.sent.append(turn.output)
        session.waited = 0
        self._sending.add(self._sending.turn(name, turn))


def check_length(request: Any, longest: int) -> int:
    """Return the largest number of tokens that a session can have. Raise RefusedError if it exceeds
    `longest`, because vLLM checks only each input by itself."""
    tokens: int = len(request.prompt) + request.max_tokens
    tokens += sum(len(turn.prompt) + turn.max_tokens for turn in request.turns)
    if request.turns and tokens > longest:
        raise RefusedError(
            f"refused by the target: the turns of {request.output.id} have {tokens} tokens; "
            f"max_model_len is {longest}"
        )
    return tokens
