"""Penstock on asyncio and trio: calls are awaited, and the event loop that runs drives them, without a thread.

async with penstock.aio.Channel("localhost:50051", tls=False) as channel:
    print(await GreeterStub(channel).SayHello(HelloRequest(name="you"), timeout=5))
    async for reply in GreeterStub(channel).SayHelloStreamReply(HelloRequest(name="you")):
        print(reply)
"""

from __future__ import annotations

from ._aio.caller import StreamStream, StreamUnary, UnaryStream, UnaryUnary
from ._aio.calls import EOF, Call, StreamStreamCall, StreamUnaryCall, UnaryCall, UnaryStreamCall
from ._aio.channel import Channel

__all__ = [
    "EOF",
    "Call",
    "Channel",
    "StreamStream",
    "StreamStreamCall",
    "StreamUnary",
    "StreamUnaryCall",
    "UnaryCall",
    "UnaryStream",
    "UnaryStreamCall",
    "UnaryUnary",
]
