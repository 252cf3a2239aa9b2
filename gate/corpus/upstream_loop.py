"""What every test file for a target's own repository has: the loop over the steps."""

LOOP = '''\
EOS = 1


def tokens_of(stream, length, start=0):
    """Tokens `start` to `start + length - 1` of a stream: only which are equal matters."""
    base = crc32(stream.encode())
    return [2 + (base + 2654435761 * i) % 31998 for i in range(start, start + length)]


def prompt_of(request):
    return [t for stream, length in request["prompt"] for t in tokens_of(stream, length)]


def sampled_token(request, number):
    """The generated token `number`, from 0, of a request."""
    if number == request.get("ends_after", 0) - 1:
        return EOS
    return tokens_of("out:" + request["id"], 1, number)[0]


def running_in(row):
    """How many ran, those included that finished in the step."""
    return len(row["running"]) + sum(one in row["scheduled"] for one in row["finished_requests"])


def nothing_raises(engine, row):
    return True


def check_scheduler_steps(config, requests, checked_steps=(), always=None, max_steps=100_000):
    """Step until the last row, or until every request has finished; every row must be as
    written."""
    engine = Engine(**config)
    expected = {row["step"]: row for row in checked_steps}
    last = max(expected, default=None)
    before = None
    for step in range(max_steps):
        for request in requests:
            if request["add_step"] == step:
                engine.add(request)
        leaving = [one for one in requests if one.get("abort_step") == step]
        for request in leaving:
            if not request.get("abort_inside"):
                engine.abort(request["id"])
        inside = [one["id"] for one in leaving if one.get("abort_inside")]
        row = engine.step(inside) if inside else engine.step()
        if always is not None:
            assert always(engine, row), f"step {step + 1}: {row}"
        if last is not None:
            told = expected.get(step + 1) or following(before)
            assert {"step": step + 1, **row} == told, f"step {step + 1}"
            before = told
        joined = all(request["add_step"] <= step for request in requests)
        if step + 1 == last or (last is None and joined and engine.is_finished()):
            return
    pytest.fail(f"not finished after {max_steps} steps")


def following(row):
    """A row that is not written: nothing happens but one more step, and one more token."""
    return row | {key: row[key] + 1 for key in ("step", "tkv") if key in row}
'''
