"""The same program on grpc.aio's channel and on ours: its user sees the same. aio_scenarios.py has the programs."""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Dict, List

import grpc.aio
import pytest

import penstock.grpc.aio
from aio_helpers import LOOPS, each, run_on, turn
from aio_scenarios import (
    BIDI,
    CLIENT,
    HANG,
    PROBE,
    SCENARIOS,
    SERVER,
    UNARY,
    Scenario,
    breaking,
    broken_serializer,
    collect,
    everything,
    outcome,
    pairs,
)
from conftest import json_bytes

# ---- Interceptors ----


class Note(
    grpc.aio.UnaryUnaryClientInterceptor,
):
    def __init__(self, log: List[Any]) -> None:
        self.log = log

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self.log.append((type(details).__name__, details.method, details.timeout, pairs(details.metadata)))
        metadata = grpc.aio.Metadata(*details.metadata)
        metadata.add("x-note", "1")
        changed = grpc.aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )
        call = await continuation(changed, request)
        self.log.append((isinstance(call, grpc.aio.UnaryUnaryCall), await call.code()))
        return call


class Answer(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return b"mine" if request == b"mine" else await continuation(details, request)


class Broken(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        await turn()
        if request == b"broken":
            raise LookupError("broken")
        return await continuation(details, request)


class Streams(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        call = await continuation(details, request + b"+")

        async def more() -> Any:
            async for message in call:
                yield message + b"-"

        return more() if request == b"more" else call


class Upload(grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, continuation: Any, details: Any, request_iterator: Any) -> Any:
        return await continuation(details, request_iterator)


class Both(grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation: Any, details: Any, request_iterator: Any) -> Any:
        return await continuation(details, request_iterator)


async def intercepted(channel: Any, log: List[Any]) -> Any:
    seen: List[Any] = []
    call = channel.unary_unary(PROBE, json_bytes)({"trailing": [["x-t", "1"]]}, metadata=(("x-a", "b"),), timeout=30)
    assert isinstance(call, grpc.aio.UnaryUnaryCall)
    ended: List[Any] = []
    call.add_done_callback(lambda done: ended.append(done is call))
    seen.append(b'["x-note", "1"]' in await call)
    seen.append((ended, await everything(call)))
    failed = channel.unary_unary(PROBE, json_bytes)({"code": 5, "message": "no"})
    seen.append((await outcome(failed), await everything(failed)))
    echo = channel.unary_unary(UNARY)
    mine = echo(b"mine")
    seen.append((await mine, await mine.code(), mine.done(), mine.cancelled(), await mine.initial_metadata()))
    broken = echo(b"broken")
    seen.append((await outcome(broken), broken.done(), broken.cancelled(), broken.cancel()))
    early = echo(b"x")
    seen.append((early.cancel(), await outcome(early), early.cancelled(), await early.code(), await early.details()))
    hanging = channel.unary_unary(HANG)(b"")
    seen.append((await outcome(asyncio.wait_for(hanging, 0.05)), hanging.cancelled()))
    more = channel.unary_stream(SERVER)(b"more")
    seen.append((await collect(more), await more.code(), isinstance(more, grpc.aio.UnaryStreamCall)))
    read = channel.unary_stream(SERVER)(b"x")
    seen.append([await read.read(), await read.read()])
    upload = channel.stream_unary(CLIENT)()
    await upload.write(b"a")
    await upload.write(b"b")
    await upload.done_writing()
    seen.append((await upload, await upload.code(), await outcome(upload.write(b"c"))))
    seen.append(await channel.stream_unary(CLIENT)([b"c", b"d"]))
    both = channel.stream_stream(BIDI)()
    await both.write(b"1")
    seen.append(await both.read())
    await both.done_writing()
    seen.append((await both.read(), await both.code()))
    seen.append(await collect(channel.stream_stream(BIDI)(each(b"1", b"2"))))
    return seen, log


def test_interceptors_of_grpc_aio_see_and_do_the_same(server: str) -> None:
    found = []
    for package, loop in ((grpc.aio, "asyncio"), (penstock.grpc.aio, "asyncio"), (penstock.grpc.aio, "uvloop")):
        log: List[Any] = []
        chain = [Note(log), Answer(), Broken(), Streams(), Upload(), Both()]

        async def work(channel: Any, log: List[Any] = log) -> Any:
            return await intercepted(channel, log)

        found.append(result(server, package, work, loop, interceptors=chain))
    (theirs, their_log), *others = found
    for ours, log in others:
        for place, seen in enumerate(theirs):
            assert (place, ours[place]) == (place, seen)
        assert log == their_log
    for package in (grpc.aio, penstock.grpc.aio):

        async def wrong(package: Any = package) -> None:
            with pytest.raises(ValueError, match="must be"):
                package.insecure_channel(server, interceptors=[object()])

        run_on(LOOPS["asyncio"], wrong())


# ---- Ours alone ----


def test_no_call_goes_through_grpcio(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpc._cython import cygrpc

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a channel of grpcio was made")

    monkeypatch.setattr(cygrpc, "AioChannel", refuse)
    counted: List[str] = []

    class Count(penstock.Interceptor):
        async def on_start(self, hop: penstock.Hop) -> None:
            counted.append(hop.method)

    async def work(channel: Any) -> Any:
        channel.penstock.add_interceptor(Count())
        await channel.unary_unary(UNARY)(b"x")
        return await collect(channel.stream_stream(BIDI)([b"1"]))

    assert result(server, penstock.grpc.aio, work, "asyncio") == [b"1"]
    assert counted == [UNARY, BIDI]


def test_errors_carry_their_cause(server: str) -> None:
    class Broken(penstock.Interceptor):
        async def on_receive(self, hop: penstock.Hop) -> None:
            raise LookupError("broken")

    async def cause(work: Awaitable[Any]) -> Any:
        try:
            await work
        except BaseException as error:
            return type(error), type(error.__cause__)
        return None

    async def work(channel: Any) -> None:
        upload = channel.stream_unary(CLIENT)(breaking())
        assert await cause(upload) == (asyncio.CancelledError, OSError)
        both = channel.stream_stream(BIDI, broken_serializer)([1])
        assert await cause(collect(both)) == (asyncio.CancelledError, KeyError)
        channel.penstock.add_interceptor(Broken())
        assert await cause(channel.unary_unary(UNARY)(b"x")) == (grpc.aio.AioRpcError, LookupError)

    penstock.set_exception_hook(lambda *_: None)
    try:
        result(server, penstock.grpc.aio, work, "asyncio")
    finally:
        penstock.set_exception_hook(None)


def test_tls_and_channel_options(servers: Dict[str, str], certificates: Any) -> None:
    roots = (certificates / "ca.pem").read_text()

    async def work() -> None:
        options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.max_receive_message_length", -1)]
        async with penstock.grpc.aio.secure_channel(servers["tls"], {"roots_pem": roots}, options) as channel:
            assert await channel.unary_unary(UNARY)(bytes(5_000_000)) == bytes(5_000_000)
        given = penstock.grpc.ssl_channel_credentials(roots.encode())
        async with penstock.grpc.aio.secure_channel(servers["tls"], given, options[:1]) as channel:
            assert await channel.unary_unary(UNARY)(b"x") == b"x"
        with pytest.warns(RuntimeWarning, match=r"grpc\.http2\.bdp_probe"):
            penstock.grpc.aio.insecure_channel(servers["plain"], [("grpc.http2.bdp_probe", 1)])
        with pytest.raises(TypeError, match="grpcio can't be read"):
            penstock.grpc.aio.secure_channel(servers["tls"], grpc.ssl_channel_credentials())
        with pytest.raises(TypeError, match="not 7"):
            penstock.grpc.aio.secure_channel(servers["tls"], 7)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="not for the target"):
            penstock.grpc.aio.secure_channel("example.org:1", penstock.grpc.local_channel_credentials())
        compressing = penstock.grpc.aio.insecure_channel(servers["plain"], compression=grpc.Compression.Deflate)
        assert await compressing.unary_unary(UNARY)(bytes(1000)) == bytes(1000)

    run_on(LOOPS["asyncio"], work())


def result(target: str, package: Any, work: Scenario, loop: str, **options: Any) -> Any:
    async def run() -> Any:
        channel = package.insecure_channel(target, **options)
        try:
            return await work(channel)
        finally:
            await channel.close()

    return run_on(LOOPS[loop], run())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_user_sees_the_same(server: str, name: str) -> None:
    theirs = result(server, grpc.aio, SCENARIOS[name], "asyncio")
    assert result(server, penstock.grpc.aio, SCENARIOS[name], "asyncio") == theirs
    assert result(server, penstock.grpc.aio, SCENARIOS[name], "uvloop") == theirs
