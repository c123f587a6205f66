"""Programs for grpc.aio, each a function of a channel that returns what its user sees."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, List, Tuple

import grpc.aio

from aio_helpers import each, eventually, hanging, turn
from conftest import json_bytes

logging.getLogger("grpc").setLevel(logging.CRITICAL)

Scenario = Callable[[Any], Awaitable[Any]]
SCENARIOS: Dict[str, Scenario] = {}

UNARY, SERVER, CLIENT, BIDI = (f"/penstock.Echo/{name}" for name in ("Unary", "ServerStream", "ClientStream", "Bidi"))
PROBE, HANG, HANG_STREAM, STREAM = (f"/penstock.Probe/{name}" for name in ("Unary", "Hang", "HangStream", "Stream"))


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
    await hanging(channel, 1)
    task.cancel()
    return await outcome(task), task.cancelled(), await everything(call)


@scenario
async def cancel_a_read(channel: Any) -> Any:
    call = channel.unary_stream(HANG_STREAM)(b"")
    first = await call.read()
    task = asyncio.ensure_future(call.read())
    await turn()
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
    other = channel.unary_unary(HANG)(b"")
    other.add_done_callback(lambda ended: seen.append(ended.cancelled()))
    other.cancel()
    await outcome(other)
    await eventually(lambda: len(seen) == 4)
    return seen


def broken_serializer(_: Any) -> Any:
    raise KeyError("broken")


async def breaking() -> Any:
    yield b"first"
    raise OSError("no more")


@scenario
async def a_cancel_before_a_request_that_can_not_be_serialized(channel: Any) -> Any:
    is_begun, may_go_on = asyncio.Event(), asyncio.Event()

    def serializer(request: Any) -> bytes:
        return b"x" if request else broken_serializer(request)

    async def requests() -> AsyncIterator[bool]:
        yield True
        is_begun.set()
        await may_go_on.wait()
        yield False

    call = channel.stream_unary(CLIENT, request_serializer=serializer)(requests())
    await asyncio.wait_for(is_begun.wait(), 20)
    may_go_on.set()
    return call.cancel(), await everything(call), await outcome(call)


@scenario
async def iterator_raises(channel: Any) -> Any:
    upload = channel.stream_unary(CLIENT)(breaking())
    both = channel.stream_stream(BIDI)(breaking())
    return await outcome(upload), await everything(upload), await outcome(collect(both)), both.cancelled()


@scenario
async def closed_channel(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")
    await hanging(channel, 1)
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
    await turn()
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
async def wait_for_connection_before_the_first_request(channel: Any) -> Any:
    call = channel.stream_stream(BIDI)()
    seen = [await outcome(call.wait_for_connection())]
    await call.write(b"x")
    seen.append(await call.read())
    await call.done_writing()
    return seen, await call.read(), await outcome(call.wait_for_connection())


@scenario
async def compressed(channel: Any) -> Any:
    return await channel.unary_unary(UNARY)(bytes(10_000), compression=grpc.Compression.Gzip) == bytes(10_000)


@scenario
async def with_statement(channel: Any) -> Any:
    async with channel as opened:
        response = await opened.unary_unary(UNARY)(b"x")
    return response, isinstance(channel, grpc.aio.Channel), channel.get_state()


@scenario
async def cancel_with_unread_messages(channel: Any) -> Any:
    call = channel.unary_stream(STREAM, json_bytes)({"count": 3})
    first = await call.read()
    # Meanwhile all messages and the status come.
    await channel.unary_unary(UNARY)(b"")
    ends = first, call.cancel(), call.cancelled(), call.done(), call.cancel()
    return ends, await outcome(call.read()), await call.code(), await call.details()


@scenario
async def names_in_bytes(channel: Any) -> Any:
    names = (UNARY.encode(), 5, None)
    return [await outcome(named(channel, name)) for name in names]


async def named(channel: Any, name: Any) -> Any:
    return await channel.unary_unary(name)(b"x")


@scenario
async def callbacks_within_callbacks(channel: Any) -> Any:
    log: List[Any] = []
    call = channel.unary_unary(UNARY)(b"")

    def first(ended: Any) -> None:
        log.append(1)
        ended.add_done_callback(lambda _: log.append(2))
        log.append((ended.cancel(), ended.done()))

    call.add_done_callback(first)
    call.add_done_callback(lambda _: log.append(3))
    await call
    await eventually(lambda: 3 in log)
    return log


@scenario
async def after_a_cancel(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")
    await hanging(channel, 1)
    call.cancel()
    calls = (call.initial_metadata(), call.trailing_metadata(), call.wait_for_connection(), call.debug_error_string())
    return [await outcome(each) for each in calls]


@scenario
async def one_of_two_waits_is_cancelled(channel: Any) -> Any:
    call = channel.unary_unary(HANG)(b"")

    async def wait() -> Any:
        return await call

    tasks = [asyncio.ensure_future(wait()) for _ in range(2)]
    await hanging(channel, 1)
    tasks[0].cancel()
    return [await outcome(task) for task in tasks], await call.code()


@scenario
async def reads_after_the_end(channel: Any) -> Any:
    good = channel.unary_stream(STREAM, json_bytes)({"count": 1})
    bad = channel.unary_stream(STREAM, json_bytes)({"count": 1, "code": 5, "message": "no"})
    return [await outcome(call.read()) for call in (good, good, good, bad, bad, bad)]


@scenario
async def state_of_a_channel_that_closes(channel: Any) -> Any:
    await channel.channel_ready()
    wait = asyncio.ensure_future(outcome(channel.wait_for_state_change(grpc.ChannelConnectivity.READY)))
    await turn()
    await channel.close()
    return await wait, channel.get_state(), await outcome(channel.channel_ready())
