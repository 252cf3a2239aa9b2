"""A target in another process, as tests drive it."""

from dataclasses import dataclass
from typing import Any

from schedproof.gate.targets.pipe import PipeTarget

Step = dict[str, Any]


@dataclass(frozen=True)
class Served:
    """A target in its own process. Each system's tests define how it is started."""

    pipe: PipeTarget

    def start(self, **changes):
        raise NotImplementedError

    def begin(self, **changes):
        assert self.start(**changes)["ok"]

    def ask(self, name, *prompt, max_tokens, **more):
        """Add a request; without a prompt of its own it has 8 tokens."""
        segments = [list(segment) for segment in prompt or ((name, 8),)]
        request = {"id": name, "prompt": segments, "max_tokens": max_tokens, **more}
        assert self.pipe.add(request) == {"ok": True}

    def abort(self, name, *, inside=False):
        assert self.pipe.abort(name, inside=inside) == {"ok": True}

    def step(self):
        reply = self.pipe.step()
        assert reply["ok"], reply["message"]
        step: Step = reply["step"]
        return step

    def finish(self, limit=500):
        """Return the steps until no request is left."""
        steps = [self.step()]
        while steps[-1]["running"] or steps[-1]["waiting"]:
            assert len(steps) < limit
            steps.append(self.step())
        return steps
