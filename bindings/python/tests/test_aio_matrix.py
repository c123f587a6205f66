"""The same program on grpc.aio's channel and on ours: what its user sees is the same."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Awaitable, Callable, Dict, List, Tuple

import grpc.aio
import pytest

import penstock.grpc.aio
from aio_helpers import LOOPS, each, run_on
from conftest import json_bytes

logging.getLogger("grpc").setLevel(logging.CRITICAL)

Scenario = Callable[[Any], Awaitable[Any]]
SCENARIOS: Dict[str, Scenario] = {}

UNARY, SERVER, CLIENT, BIDI = (f"/penstock.Echo/{name}" for name in ("Unary", "ServerStream", "ClientStream", "Bidi"))
PROBE, HANG, HANG_STREAM = (f"/penstock.Probe/{name}" for name in ("Unary", "Hang", "HangStream"))


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def pairs(metadata: Any) -> List[Tuple[str, Any]]:
    return [(key, value) for key, value in metadata or () if key.startswith("x-")]


async def outcome(work: Awaitable[Any]) -> Any:
    """What a user sees of ``work``: its value, or its exception."""
    try:
        return await work
    except grpc.aio.AioRpcError as error:
        types = (type(error.initial_metadata()), type(error.trailing_metadata()))
        kept = (pairs(error.initial_metadata()), pairs(error.trailing_metadata()))
        return type(error), error.code(), error.details(), types, kept
    except asyncio.CancelledError as error:
        return type(error)
    except Exception as error:
        return type(error), str(error) if not isinstance(error, (TypeError, ValueError)) else ""


async def everything(call: Any) -> Any:
    """What the methods of an ended call give."""
    return (
        call.done(),
        call.cancelled(),
        await call.code(),
        await call.details(),
        type(await call.initial_metadata()),
        pairs(await call.initial_metadata()),
        pairs(await call.trailing_metadata()),
        call.cancel(),
    )


async def collect(call: Any) -> List[Any]:
    return [message async for message in call]


# ---- The scenarios ----


@scenario
async def ok_unary(channel: Any) -> Any:
    wish = {"initial": [["x-i", "1"], ["x-i", "2"]], "trailing": [["x-t-bin", "00ff"]]}
    call = channel.unary_unary(PROBE, json_bytes)(wish, metadata=(("x-a", "b"),), timeout=30)
    assert isinstance(call, grpc.aio.UnaryUnaryCall)
    assert isinstance(call, grpc.aio.Call)
    response = await call
    return b'["x-a", "b"]' in response, type(response), await everything(call), await call == response


@scenario
async def failed_unary(channel: Any) -> Any:
    wish = {"initial": [["x-i", "1"]], "trailing": [["x-t", "3"]], "code": 5, "message": "not here"}
    call = channel.unary_unary(PROBE, json_bytes)(wish)
    first = await outcome(call)
    return first, await outcome(call) == first, await everything(call)


@scenario
async def metadata_object(channel: Any) -> Any:
    call = channel.unary_unary(PROBE, json_bytes)({}, metadata=grpc.aio.Metadata(("x-a", "1"), ("x-b-bin", b"\0")))
    response = await call
    return b'["x-a", "1"]' in response, b'["x-b-bin", "00"]' in response


@scenario
async def unimplemented(channel: Any) -> Any:
    return (await outcome(channel.unary_unary("/penstock.Echo/Nope")(b"")))[:2]


@scenario
async def deadline(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"", timeout=0.05)
    assert 0 <= call.time_remaining() <= 0.05
    found = await outcome(call)
    # The details are words of the library, which say what the call was waiting for.
    return found[:2], bool(found[2]), found[3:], channel.unary_unary(UNARY)(b"").time_remaining()


@scenario
async def stream(channel: Any) -> Any:
    call = channel.unary_stream(SERVER)(b"x", metadata=(("x-repeat", "3"),))
    assert isinstance(call, grpc.aio.UnaryStreamCall)
    return await collect(call), await everything(call), await collect(call)


@scenario
async def stream_with_error(channel: Any) -> Any:
    call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)({"count": 3, "code": 9, "message": "enough"})
    seen = []
    try:
        async for message in call:
            seen.append(message)
    except grpc.RpcError as error:
        seen.append((type(error), error.code()))
    return seen, await everything(call)


@scenario
async def reads(channel: Any) -> Any:
    call = channel.unary_stream(SERVER)(b"x", metadata=(("x-repeat", "2"),))
    return [await call.read() for _ in range(4)], await everything(call)


@scenario
async def read_of_an_error(channel: Any) -> Any:
    call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)({"count": 1, "code": 9, "message": "enough"})
    return [await outcome(call.read()) for _ in range(3)]


@scenario
async def mixed_styles(channel: Any) -> Any:
    call = channel.unary_stream(HANG_STREAM)(b"")
    first = await call.read()

    async def iterate() -> None:
        async for _ in call:
            pass

    mixed = await outcome(iterate())
    given = channel.stream_stream(BIDI)(each(b"1"))
    return first, mixed, await outcome(given.write(b"2")), await outcome(given.done_writing())


@scenario
async def upload(channel: Any) -> Any:
    call = channel.stream_unary(CLIENT)
    written = call()
    await written.write(b"a")
    await written.write(b"b")
    await written.done_writing()
    await written.done_writing()
    late = await outcome(written.write(b"c"))
    assert isinstance(written, grpc.aio.StreamUnaryCall)
    given = await call([b"a", b"b"]), await call(each(b"c", b"d")), await call(data for data in (b"e",))
    return await written, await everything(written), given, late, await outcome(written.write(b"d"))


@scenario
async def early_end(channel: Any) -> Any:
    call = channel.stream_unary("/penstock.Probe/Early")()
    found = await outcome(call)
    return found, await outcome(call.write(b"late")), await outcome(call.done_writing()), call.done()


@scenario
async def bidi(channel: Any) -> Any:
    call = channel.stream_stream(BIDI)()
    assert isinstance(call, grpc.aio.StreamStreamCall)
    seen = []
    for number in range(3):
        await call.write(b"%d" % number)
        seen.append(await call.read())
    await call.done_writing()
    seen.append(await call.read())
    return seen, await everything(call), await collect(channel.stream_stream(BIDI)(each(b"1", b"2")))


@scenario
async def cancel_unary(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")
    states = [call.done(), call.cancelled(), call.cancel(), call.done(), call.cancelled(), call.cancel()]
    return states, await outcome(call), await everything(call)


@scenario
async def cancel_before_the_task_runs(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")

    async def wait() -> None:
        await call

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0.02)
    task.cancel()
    return await outcome(task), task.cancelled(), await everything(call)


@scenario
async def cancel_a_read(channel: Any) -> Any:
    call = channel.unary_stream(HANG_STREAM)(b"")
    first = await call.read()
    task = asyncio.ensure_future(call.read())
    await asyncio.sleep(0.02)
    task.cancel()
    return first, await outcome(task), await everything(call), await outcome(call.read())


@scenario
async def cancel_while_iterating(channel: Any) -> Any:
    call = channel.unary_stream(HANG_STREAM)(b"")
    seen = []

    async def iterate() -> None:
        async for message in call:
            seen.append(message)
            call.cancel()

    return await outcome(iterate()), seen, await everything(call)


@scenario
async def cancel_an_upload(channel: Any) -> Any:
    call = channel.stream_stream("/penstock.Probe/HangBidi")()
    await call.write(b"x")
    cancelled = call.cancel()
    return cancelled, await outcome(call.write(b"y")), await outcome(call.read()), await everything(call)


@scenario
async def wait_for(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")
    return await outcome(asyncio.wait_for(call, 0.05)), call.cancelled(), await call.code()


@scenario
async def wait_for_the_code(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")
    return await outcome(asyncio.wait_for(call.code(), 0.05)), call.done()


@scenario
async def done_callbacks(channel: Any) -> Any:
    seen: List[Any] = []
    call = channel.unary_unary(UNARY)(b"x")
    call.add_done_callback(lambda ended: seen.append((ended is call, ended.done())))
    seen.append(await call)
    call.add_done_callback(lambda ended: seen.append("late"))
    hanging = channel.unary_unary(HANG)(b"")
    hanging.add_done_callback(lambda ended: seen.append(ended.cancelled()))
    hanging.cancel()
    await outcome(hanging)
    await asyncio.sleep(0.01)
    return seen


def _broken(_: Any) -> Any:
    raise KeyError("broken")


async def _breaking() -> Any:
    yield b"first"
    raise OSError("no more")


@scenario
async def iterator_raises(channel: Any) -> Any:
    upload = channel.stream_unary(CLIENT)(_breaking())
    both = channel.stream_stream(BIDI)(_breaking())
    return await outcome(upload), await everything(upload), await outcome(collect(both)), both.cancelled()


@scenario
async def closed_channel(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")
    await asyncio.sleep(0.02)
    await channel.close()
    await channel.close()

    async def late() -> Any:
        return await channel.unary_unary(UNARY)(b"x")

    return await outcome(call), call.cancelled(), await outcome(late()), channel.get_state()


@scenario
async def grace(channel: Any) -> Any:
    call = channel.stream_stream(BIDI)()
    await call.write(b"1")
    closing = asyncio.ensure_future(channel.close(20))
    await asyncio.sleep(0.01)
    seen = [await call.read(), closing.done()]
    await call.done_writing()
    seen.append(await call.read())
    await closing
    return seen, await call.code()


@scenario
async def grace_is_over(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")
    await channel.close(0.05)
    return await outcome(call), await call.code(), await outcome(channel.close(-1))


@scenario
async def states(channel: Any) -> Any:
    seen = [channel.get_state()]
    await channel.channel_ready()
    seen.append(channel.get_state(True))
    return seen, await outcome(asyncio.wait_for(channel.wait_for_state_change(seen[-1]), 0.02))


@scenario
async def wrong_arguments(channel: Any) -> Any:
    async def call(*positional: Any, **keywords: Any) -> Any:
        return await channel.unary_unary(UNARY)(*positional, **keywords)

    return [
        (await outcome(call(b"x", unknown=1)))[0],
        (await outcome(call()))[0],
        (await outcome(call(b"x", 5)))[0],
    ]


@scenario
async def wait_for_connection(channel: Any) -> Any:
    call = channel.stream_stream(BIDI)()
    await call.write(b"x")
    return await outcome(call.wait_for_connection()), await call.read()


@scenario
async def compressed(channel: Any) -> Any:
    return await channel.unary_unary(UNARY)(bytes(10_000), compression=grpc.Compression.Gzip) == bytes(10_000)


@scenario
async def with_statement(channel: Any) -> Any:
    async with channel as opened:
        response = await opened.unary_unary(UNARY)(b"x")
    return response, isinstance(channel, grpc.aio.Channel), channel.get_state()


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
        await asyncio.sleep(0)
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


# ---- What only ours does ----


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
        upload = channel.stream_unary(CLIENT)(_breaking())
        assert await cause(upload) == (asyncio.CancelledError, OSError)
        both = channel.stream_stream(BIDI, _broken)([1])
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
        with pytest.warns(UserWarning, match=r"grpc\.lb_policy_name"):
            penstock.grpc.aio.insecure_channel(servers["plain"], [("grpc.lb_policy_name", "x")])
        with pytest.raises(TypeError, match="mapping"):
            penstock.grpc.aio.secure_channel(servers["tls"], grpc.ssl_channel_credentials())  # type: ignore[arg-type]
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
