"""Programs as a type checker sees them. mypy --strict checks this file: it accepts each line without "type: ignore",
and finds an error in each line with one (a needless "type: ignore" is an error, too)."""

from __future__ import annotations

from typing import AsyncIterator, Optional

import penstock
from penstock import aio


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
    penstock.Chanel  # type: ignore[attr-defined]  # noqa: B018
    version: int = penstock.__version__  # type: ignore[assignment]
    assert version


class Async(penstock.Interceptor):
    async def on_start(self, hop: penstock.Hop) -> None: ...

    async def on_receive(self, hop: penstock.Hop) -> Optional[penstock.Verdict]:
        return penstock.Verdict.DROP

    def on_status(self, hop: penstock.Hop) -> None: ...

    async def on_cancel(self, hop: penstock.Hop) -> None: ...

    async def on_pick(self, hop: penstock.Hop) -> None: ...  # type: ignore[override]


async def requests() -> AsyncIterator[bytes]:
    yield b""


async def calls_on_a_loop(channel: aio.Channel) -> None:
    unary = channel.unary_unary("/a.B/C")
    call = unary(b"", 3, interceptors=[Async()])
    code: penstock.StatusCode = await call.code()
    unary(b"", deadline=3)  # type: ignore[call-arg]
    await channel.unary_stream("/a.B/C")(b"")  # type: ignore[misc]
    async for _ in channel.stream_stream("/a.B/C")(requests(), timeout=3):
        pass
    upload = channel.stream_unary("/a.B/C")()
    await upload.write(b"")
    await upload.done_writing()
    channel.stream_stream("/a.B/C")(3)  # type: ignore[arg-type]
    await channel.close(grace=1.5)
    assert code is penstock.StatusCode.OK
