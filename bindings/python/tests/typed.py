"""Programs as a type checker sees them. mypy --strict checks this file: it accepts each line without "type: ignore",
and finds an error in each line with one (a needless "type: ignore" is an error, too)."""

from __future__ import annotations

import penstock


def calls(channel: penstock.Channel, hop: penstock.Hop) -> None:
    unary = channel.unary_unary("/a.B/C")
    unary(b"", 3, {"x-tag": "1"}, interceptors=[penstock.Interceptor()], trace=3)
    unary(request=b"", timeout=None, idempotency=penstock.Idempotency.IDEMPOTENT)
    unary(b"", timeout="3")  # type: ignore[arg-type]
    unary(b"", deadline=3)  # type: ignore[call-arg]
    unary()  # type: ignore[call-arg]
    _, ended = unary.with_call(b"", wait_for_ready=True)
    code: penstock.StatusCode = ended.code()
    for _ in channel.unary_stream("/a.B/C")(b"", timeout=3).cancel():  # type: ignore[attr-defined]
        pass
    channel.stream_unary("/a.B/C")([b""], compression="gzip")
    channel.stream_stream("/a.B/C")(3)  # type: ignore[arg-type]
    hop.unary("/a.B/C", b"", lambda response, outcome: outcome.code(), timeout=3, detached=True)
    hop.unary("/a.B/C", b"", lambda response: None)  # type: ignore[arg-type,misc]
    hop.set_channel(channel)
    hop.set_channel("other")  # type: ignore[arg-type]
    assert code is penstock.StatusCode.OK
