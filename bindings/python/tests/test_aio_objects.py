"""Every member of the objects that `penstock.grpc.aio` gives for calls and channels, in each state, also behind
interceptors; those of grpcio are the same."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Awaitable, Callable, Dict, List

import grpc.aio
import pytest

import penstock.grpc
import penstock.grpc.aio
from aio_helpers import each, eventually, run_on, turn
from helpers import with_new_grpcio
from penstock.grpc import experimental
from penstock.grpc.aio import _abstract

pytestmark = with_new_grpcio
BOTH = pytest.mark.parametrize("module", [grpc.aio, penstock.grpc.aio], ids=["grpcio", "penstock"])
OURS = pytest.mark.parametrize("module", [penstock.grpc.aio], ids=["penstock"])
ECHO = "/penstock.Echo/"
WISH = json.dumps({"code": 9, "message": "not so", "initial": [["a", "1"]], "trailing": [["b", "2"]]}).encode()
LOCALLY = "Locally cancelled by application!"


def using(module: Any, server: str, work: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    """The result of ``work(channel)``."""

    async def use() -> Any:
        async with module.insecure_channel(server, **options) as channel:
            return await work(channel)

    return run_on(asyncio.new_event_loop, use())


async def failure(work: Awaitable[Any]) -> Any:
    """The exception of ``work``."""
    try:
        await work
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def looking(module: Any, found: List[Any]) -> List[Any]:
    """Interceptors of each kind that change nothing, and keep the call that they see."""

    async def look(self: Any, continuation: Any, details: Any, request: Any) -> Any:
        found.append(details)
        return await continuation(details, request)

    bases = {
        "intercept_unary_unary": module.UnaryUnaryClientInterceptor,
        "intercept_unary_stream": module.UnaryStreamClientInterceptor,
        "intercept_stream_unary": module.StreamUnaryClientInterceptor,
        "intercept_stream_stream": module.StreamStreamClientInterceptor,
    }
    return [type("Look", (base,), {name: look})() for name, base in bases.items()]


IS_BEHIND = pytest.mark.parametrize("is_behind", [False, True], ids=["", "behind interceptors"])


def options_for(module: Any, is_behind: bool) -> Dict[str, Any]:
    return {"interceptors": looking(module, [])} if is_behind else {}


@BOTH
@IS_BEHIND
def test_a_call_that_fails(module: Any, server: str, is_behind: bool) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_unary("/penstock.Probe/Unary")(WISH, timeout=600)
        assert (call.done(), call.cancelled()) == (False, False)
        told: List[Any] = []
        call.add_done_callback(told.append)
        error = await failure(call)
        assert isinstance(error, grpc.aio.AioRpcError)
        assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not so")
        assert ("a", "1") in list(error.initial_metadata())
        assert ("b", "2") in list(error.trailing_metadata())
        assert "not so" in str(error.debug_error_string())
        assert (await call.code(), await call.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not so")
        assert ("a", "1") in list(await call.initial_metadata())
        assert ("b", "2") in list(await call.trailing_metadata())
        assert "not so" in str(await call.debug_error_string())
        assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)
        await turn()
        assert told == [call]
        call.add_done_callback(told.append)
        assert told == [call] * 2
        again = await failure(call.wait_for_connection())
        assert (again.code(), again.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not so")

    using(module, server, work, **options_for(module, is_behind))


@BOTH
@IS_BEHIND
def test_a_call_that_ends_well(module: Any, server: str, is_behind: bool) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_unary(f"{ECHO}Unary")(b"x")
        await call.wait_for_connection()
        assert await call == b"x"
        assert (await call.code(), await call.details()) == (grpc.StatusCode.OK, "")
        assert await call.debug_error_string() == ""
        assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)
        assert await call == b"x"

    using(module, server, work, **options_for(module, is_behind))


@BOTH
@IS_BEHIND
def test_a_call_that_is_cancelled(module: Any, server: str, is_behind: bool) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
        assert await call.read() == b"first"
        assert (call.done(), call.cancelled()) == (False, False)
        told: List[Any] = []
        call.add_done_callback(told.append)
        assert call.cancel() is True
        assert (await call.code(), await call.details()) == (grpc.StatusCode.CANCELLED, LOCALLY)
        assert (call.done(), call.cancelled(), call.cancel()) == (True, True, False)
        await eventually(lambda: bool(told))
        assert told == [call]
        assert isinstance(await failure(call.read()), asyncio.CancelledError)

    using(module, server, work, **options_for(module, is_behind))


@BOTH
@IS_BEHIND
def test_streams_that_are_read_and_written(module: Any, server: str, is_behind: bool) -> None:
    async def work(channel: Any) -> None:
        call = channel.stream_stream(f"{ECHO}Bidi")()
        if not is_behind:
            await call.wait_for_connection()
        for data in (b"a", b"b"):
            await call.write(data)
            assert await call.read() == data
        await call.done_writing()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        late = await failure(call.write(b"c"))
        assert (type(late), str(late)) == (asyncio.InvalidStateError, "RPC already finished.")
        half = channel.stream_stream(f"{ECHO}Bidi")()
        await half.write(b"a")
        await half.done_writing()
        # As long as a message has not been read the call goes on.
        if module is not grpc.aio or not is_behind:
            late = await failure(half.write(b"b"))
            said = 'RPC is half closed after calling "done_writing".'
            assert (type(late), str(late)) == (asyncio.InvalidStateError, said)
        assert [message async for message in half] == [b"a"]
        upload = channel.stream_unary(f"{ECHO}ClientStream")()
        await upload.write(b"a")
        await upload.write(b"b")
        await upload.done_writing()
        assert await upload == b"ab"

    using(module, server, work, **options_for(module, is_behind))


MIXED = "The iterator and read/write APIs may not be mixed on a single RPC."


@OURS
@IS_BEHIND
def test_ways_that_are_not_mixed(module: Any, server: str, is_behind: bool) -> None:
    async def work(channel: Any) -> None:
        both = channel.stream_stream(f"{ECHO}Bidi")(each(b"a"))
        upload = channel.stream_unary(f"{ECHO}ClientStream")([b"a"])
        for work in (both.write(b"b"), both.done_writing(), upload.write(b"b"), upload.done_writing()):
            error = await failure(work)
            assert (type(error), str(error)) == (grpc.aio.UsageError, MIXED)
        if not is_behind:
            read = channel.unary_stream(f"{ECHO}ServerStream")(b"x", metadata=(("x-repeat", "2"),))
            assert await read.read() == b"x"
            with pytest.raises(grpc.aio.UsageError, match=MIXED):
                read.__aiter__()
            iterated = channel.unary_stream(f"{ECHO}ServerStream")(b"x", metadata=(("x-repeat", "2"),))
            assert await iterated.__aiter__().__anext__() == b"x"
            assert iterated.__aiter__() is iterated.__aiter__()
            error = await failure(iterated.read())
            assert (type(error), str(error)) == (grpc.aio.UsageError, MIXED)

    using(module, server, work, **options_for(module, is_behind))


@OURS
def test_the_words_for_a_call(module: Any, server: str) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_stream("/penstock.Probe/HangStream")(b"", timeout=600)
        assert repr(call) == "<penstock.grpc.aio.UnaryStreamCall /penstock.Probe/HangStream, running>"
        assert 0 < call.time_remaining() <= 600
        call.cancel()
        assert repr(call) == "<penstock.grpc.aio.UnaryStreamCall /penstock.Probe/HangStream, CANCELLED>"
        assert await call.debug_error_string() is None
        assert list(await call.trailing_metadata()) == []
        ended = channel.unary_unary(f"{ECHO}Unary")(b"x")
        assert ended.time_remaining() is None
        await ended
        assert repr(ended) == f"<penstock.grpc.aio.UnaryUnaryCall {ECHO}Unary, OK>"
        kinds = (channel.stream_unary(f"{ECHO}ClientStream")([b"a"]), channel.stream_stream(f"{ECHO}Bidi")([b"a"]))
        for kind, name in zip(kinds, ("StreamUnaryCall", "StreamStreamCall")):
            assert repr(kind).startswith(f"<penstock.grpc.aio.{name} /")
        assert repr(channel.penstock) == f"<penstock.aio.Channel {server!r}>"

    using(module, server, work)


@BOTH
def test_a_deadline(module: Any, server: str) -> None:
    async def work(channel: Any) -> None:
        call = channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=0.05)
        error = await failure(call)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: call.time_remaining() == 0)
        assert (call.done(), call.cancelled()) == (True, False)

    using(module, server, work)


# ---- Interceptors that answer or raise ----


@BOTH
def test_an_interceptor_sees_what_the_call_was_given(module: Any, server: str) -> None:
    found: List[Any] = []

    async def work(channel: Any) -> None:
        given: Dict[str, Any] = {"timeout": 600, "metadata": (("a", "1"),), "wait_for_ready": True}
        await channel.unary_unary(f"{ECHO}Unary")(b"x", **given)
        assert [one async for one in channel.unary_stream(f"{ECHO}ServerStream")(b"x", **given)] == [b"x"]
        await channel.stream_unary(f"{ECHO}ClientStream")([b"x"], **given)
        assert [one async for one in channel.stream_stream(f"{ECHO}Bidi")([b"x"], **given)] == [b"x"]
        await channel.unary_unary(f"{ECHO}Unary")(b"x")

    using(module, server, work, interceptors=looking(module, found))
    names = [each.method if isinstance(each.method, str) else each.method.decode() for each in found]
    assert names == [ECHO + name for name in ("Unary", "ServerStream", "ClientStream", "Bidi", "Unary")]
    for each_one in found[:4]:
        assert (each_one.timeout, list(each_one.metadata)) == (600, [("a", "1")])
        assert (each_one.credentials, each_one.wait_for_ready) == (None, True)
    assert (found[4].timeout, list(found[4].metadata), found[4].wait_for_ready) == (None, [], None)


@BOTH
def test_an_interceptor_that_answers(module: Any, server: str) -> None:
    class Answers(module.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            return b"mine"

    async def work(channel: Any) -> None:
        call = channel.unary_unary(f"{ECHO}Unary")(b"x")
        assert await call == b"mine"
        assert (await call.code(), await call.details()) == (grpc.StatusCode.OK, "")
        assert await call.debug_error_string() is None
        assert (await call.initial_metadata(), await call.trailing_metadata()) == (None, None)
        assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)
        await call.wait_for_connection()
        told: List[Any] = []
        call.add_done_callback(told.append)
        assert told == [call]
        with pytest.raises(NotImplementedError):
            call.time_remaining()

    using(module, server, work, interceptors=[Answers()])


@OURS
def test_an_answer_in_the_place_of_a_call(module: Any, server: str) -> None:
    from penstock.grpc.aio._interceptors import _Answered

    answered = _Answered(b"mine")
    for use in (answered.time_remaining, lambda: answered.add_done_callback(print)):
        with pytest.raises(NotImplementedError):
            use()
    assert (answered.cancel(), answered.cancelled(), answered.done()) == (False, False, True)
    assert isinstance(answered, grpc.aio.Call)


@BOTH
def test_an_interceptor_that_returns_an_iterator(module: Any, server: str) -> None:
    class More(module.UnaryStreamClientInterceptor):  # type: ignore[misc]
        async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
            call = await continuation(details, request)

            async def more() -> Any:
                async for message in call:
                    yield message + b"!"

            return more()

    async def work(channel: Any) -> None:
        call = channel.unary_stream(f"{ECHO}ServerStream")(b"x", metadata=(("x-repeat", "2"),))
        assert [message async for message in call] == [b"x!", b"x!"]
        assert (await call.code(), call.done(), call.cancelled()) == (grpc.StatusCode.OK, True, False)
        if module is not grpc.aio:
            read = channel.unary_stream(f"{ECHO}ServerStream")(b"x", metadata=(("x-repeat", "2"),))
            assert [await read.read() for _ in range(3)] == [b"x!", b"x!", grpc.aio.EOF]

    using(module, server, work, interceptors=[More()])


@BOTH
@pytest.mark.parametrize("code", [1, 5])
def test_an_interceptor_that_raises_a_status(module: Any, server: str, code: int) -> None:
    status = next(each for each in grpc.StatusCode if each.value[0] == code)
    metadata = grpc.aio.Metadata(("a", "1"))

    class Refuses(module.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            raise grpc.aio.AioRpcError(status, metadata, grpc.aio.Metadata(("b", "2")), "no", "for logs")

    async def work(channel: Any) -> None:
        call = channel.unary_unary(f"{ECHO}Unary")(b"x")
        assert (await call.code(), await call.details()) == (status, "no")
        assert await call.debug_error_string() == "for logs"
        assert list(await call.initial_metadata()) == [("a", "1")]
        assert list(await call.trailing_metadata()) == [("b", "2")]
        assert (call.done(), call.cancelled(), call.cancel()) == (True, code == 1, False)
        error = await failure(call)
        assert error.code() is status

    using(module, server, work, interceptors=[Refuses()])


@BOTH
def test_a_call_that_is_cancelled_while_an_interceptor_runs(module: Any, server: str) -> None:
    class Waits(module.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            await asyncio.Event().wait()

    async def work(channel: Any) -> None:
        call = channel.unary_unary(f"{ECHO}Unary")(b"x")
        await turn()
        assert (call.done(), call.cancelled()) == (False, False)
        told: List[Any] = []
        call.add_done_callback(told.append)
        assert call.cancel() is True
        assert isinstance(await failure(call), asyncio.CancelledError)
        assert (call.done(), call.cancelled(), call.cancel()) == (True, True, False)
        assert (await call.code(), await call.details()) == (grpc.StatusCode.CANCELLED, LOCALLY)
        assert (await call.initial_metadata(), await call.trailing_metadata()) == (None, None)
        assert await call.debug_error_string() == ""
        await eventually(lambda: bool(told))
        assert told == [call]

    using(module, server, work, interceptors=[Waits()])


@OURS
def test_writing_to_a_call_whose_interceptor_has_ended_it(module: Any, server: str) -> None:
    class Refuses(module.StreamUnaryClientInterceptor):  # type: ignore[misc]
        async def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
            raise grpc.aio.AioRpcError(grpc.StatusCode.ABORTED, None, None, "no")

    async def work(channel: Any) -> None:
        call = channel.stream_unary(f"{ECHO}ClientStream")()
        error = await failure(call.write(b"a"))
        assert (type(error), str(error)) == (asyncio.InvalidStateError, "RPC already finished.")
        assert isinstance(error.__cause__, grpc.aio.AioRpcError)
        error = await failure(call.done_writing())
        assert (type(error), str(error)) == (asyncio.InvalidStateError, "RPC already finished.")

    using(module, server, work, interceptors=[Refuses()])


# ---- The channel ----


@OURS
def test_a_channel_that_closes(module: Any, server: str) -> None:
    async def use() -> None:
        channel = module.insecure_channel(server)
        assert channel.get_state() is grpc.ChannelConnectivity.IDLE
        assert channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.IDLE
        await channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE)
        await channel.channel_ready()
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        with pytest.raises(ValueError, match=r"^grace must be non-negative, got -1\.$"):
            await channel.close(-1)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        assert await channel.unary_unary(f"{ECHO}Unary")(b"x") == b"x"
        await channel.close()
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
        await channel.close(-1)
        with pytest.raises(grpc.aio.UsageError, match=r"^Channel is closed\.$"):
            await channel.wait_for_state_change(grpc.ChannelConnectivity.SHUTDOWN)

    run_on(asyncio.new_event_loop, use())


@OURS
def test_filters_are_for_interceptors_of_ours(module: Any, server: str) -> None:
    async def work(channel: Any) -> None:
        with pytest.raises(TypeError, match=r"^interceptors of grpc\.aio have no filters: methods$"):
            channel.add_interceptor(looking(module, [])[0], methods="/a/b")

    using(module, server, work)


def test_what_are_no_credentials() -> None:
    with pytest.raises(TypeError, match=r"^expected credentials of penstock\.grpc, True or a mapping, not False$"):
        penstock.grpc.aio.secure_channel("a:1", False)


# ---- Where grpcio can't be imported ----


def test_an_error_of_the_status() -> None:
    first, last = _abstract.Metadata(("a", "1")), _abstract.Metadata(("b", "2"))
    error = _abstract.AioRpcError(penstock.grpc.StatusCode.ABORTED, first, last, "no", "for logs")
    assert (error.code(), error.details()) == (penstock.grpc.StatusCode.ABORTED, "no")
    assert (error.initial_metadata(), error.trailing_metadata()) == (first, last)
    assert error.debug_error_string() == "for logs"


def test_names_that_are_experimental() -> None:
    import penstock.grpc.experimental.aio

    assert experimental.aio is penstock.grpc.experimental.aio
    with pytest.raises(AttributeError, match=r"^module 'penstock\.grpc\.experimental' has no attribute 'nothing'$"):
        experimental.nothing  # noqa: B018
    with pytest.raises(AttributeError, match=r"^CustomPrivateKeySign is not available in penstock\.grpc, since "):
        experimental.CustomPrivateKeySign  # noqa: B018
    said = r"^The insecure option is mutually exclusive with the channel_credentials option\.$"
    with pytest.raises(ValueError, match=said):
        experimental.unary_unary(
            b"", "a:1", "/a/b", channel_credentials=experimental.insecure_channel_credentials(), insecure=True
        )


def test_the_channels_of_single_calls_are_kept(server: str) -> None:
    experimental._channels.clear()
    assert experimental.unary_unary(b"x", server, f"{ECHO}Unary", insecure=True) == b"x"
    assert list(experimental.unary_stream(b"x", server, f"{ECHO}ServerStream", insecure=True)) == [b"x"]
    assert experimental.stream_unary(iter([b"x"]), server, f"{ECHO}ClientStream", insecure=True) == b"x"
    assert list(experimental.stream_stream(iter([b"x"]), server, f"{ECHO}Bidi", insecure=True)) == [b"x"]
    assert len(experimental._channels) == 1
    (kept,) = experimental._channels.values()
    for number in range(15):
        experimental._channel("a:1", [("grpc.default_authority", str(number))], None, True, None)
    assert len(experimental._channels) == 16
    assert kept in experimental._channels.values()
    experimental._channel("b:1", (), None, True, None)
    assert len(experimental._channels) == 16
    assert kept not in experimental._channels.values()
    experimental._channels.clear()
