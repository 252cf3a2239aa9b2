"""Steps a second of the reference models while eight requests decode, one core.

    python tests/bench/model_speed.py                   # this checkout
    python tests/bench/model_speed.py --against COMMIT  # and that commit, in turns, and the ratio

A step is one call of the model: decision, completion and observation. Every sample is some
thousand steps by processor time; the best of several counts, since other work on the machine only
makes a sample slower. Another commit is measured in processes of its own, from a worktree of git
in a temporary folder.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REQUESTS, STEPS, SAMPLES = 8, 1000, 10
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "spyre 2.1.2": ("spyre", "2.1.2", {}),
    "spyre 2.1.2, caching": ("spyre", "2.1.2", {"prefix_caching": True}),
    "spyre sound": ("spyre", "sound", {}),
    "spyre 2.5.2": ("spyre", "2.5.2", {}),
    "vllm": ("vllm", "documented", {}),
    "nano_vllm": ("nano_vllm", "0.2.0", {}),
    "llmservingsim": ("llmservingsim", "head", {}),
}


def steps_per_second(system: str, revision: str, config: dict[str, Any], steps: int) -> float:
    """One sample: so many decode steps of eight requests, in steps a second of processor time."""
    from schedproof.model.scenario import Request
    from schedproof.model.systems import make_model

    model = make_model(system, revision, config)
    state = model.initial()
    for number in range(REQUESTS):
        name = f"r{number}"
        prompt = ((name, 100 + 37 * number),)
        state = model.arrive(state, Request(id=name, arrival=0, prompt=prompt, max_tokens=3000))
    seen: dict[str, Any] = {"emitted": {}}
    while len(seen["emitted"]) < REQUESTS:
        state, seen = model.step(state)
    began = time.process_time()
    for _ in range(steps):
        state, _ = model.step(state)
    return steps / (time.process_time() - began)


def sampled(package: Path, case: str, steps: int) -> float:
    """One sample of the package in a folder of this name, in a process of its own."""
    code = f"import sys; sys.path[:0] = [{str(package.parent)!r}, {str(ROOT / 'tests/bench')!r}]\n"
    code += f"import model_speed; print(model_speed.steps_per_second(*{CASES[case]!r}, {steps}))"
    reported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return float(reported.stdout)


def measure(packages: dict[str, Path], samples: int, steps: int) -> dict[str, dict[str, float]]:
    """The best sample of each case and package, taken in turns."""
    best: dict[str, dict[str, float]] = {case: dict.fromkeys(packages, 0.0) for case in CASES}
    for _ in range(samples):
        for case, found in best.items():
            for name, package in packages.items():
                found[name] = max(found[name], sampled(package, case, steps))
    return best


def table(best: dict[str, dict[str, float]]) -> str:
    """A line a case, with the ratio of this checkout to the other commit."""
    lines = []
    for case, found in best.items():
        here, *other = found.values()
        ratio = f"{other[0]:10,.0f}  {here / other[0]:5.2f}x" if other else ""
        lines.append(f"{case:22}{here:10,.0f} steps/s  {ratio}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit, too")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--steps", type=int, default=STEPS, help="decode steps of a sample")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, too")
    given = parser.parse_args()
    if given.samples < 1 or not 1 <= given.steps <= 2900:
        parser.error("--samples is at least 1, --steps 1 to 2900")
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder, "here", "schedproof")
        here.parent.mkdir()
        here.symlink_to(ROOT)
        packages = {"here": here}
        if given.against is not None:
            other = Path(folder, "other", "schedproof")
            add = ["git", "-C", str(ROOT), "worktree", "add", "--detach", "--quiet", str(other)]
            added = subprocess.run([*add, given.against], capture_output=True, text=True)
            if added.returncode:
                parser.error(f"--against {given.against}: {added.stderr.strip()}")
            packages[given.against] = other
        try:
            best = measure(packages, given.samples, given.steps)
        finally:
            if len(packages) > 1:
                remove = ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(other)]
                subprocess.run(remove, check=True)
    print(table(best))
    if given.json is not None:
        given.json.write_text(json.dumps(best, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
