"""Calls on an event loop: the four kinds, and how they end."""

from __future__ import annotations

import asyncio
import json
from typing import Any, AsyncIterator, List

import pytest

import penstock
from aio_helpers import LOOPS, Runner, each, eventually, hanging, opened, raises, run_on, turn
from conftest import json_bytes
from penstock import RpcError, StatusCode, aio


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Runner:
    return lambda work: run_on(LOOPS[request.param], work)


def test_the_four_kinds_with_generated_stubs(server: str, stubs: str, run: Runner) -> None:
    import helloworld_pb2
    import helloworld_pb2_grpc
    import testing_pb2
    import testing_pb2_grpc

    async def work() -> None:
        async with opened(server) as channel:
            greeter = helloworld_pb2_grpc.GreeterStub(channel)
            service = testing_pb2_grpc.TestServiceStub(channel)
            you = helloworld_pb2.HelloRequest(name="you")
            assert (await greeter.SayHello(you, timeout=20)).message == "Hello, you!"
            greetings = [reply.message async for reply in greeter.SayHelloStreamReply(you)]
            assert greetings == ["Hello, you!", "Servus, you!", "Salut, you!"]
            parts = [testing_pb2.StreamingInputCallRequest(payload=testing_pb2.Payload(body=bytes(9)))] * 3
            assert (await service.StreamingInputCall(parts)).aggregated_payload_size == 27
            assert (await service.StreamingInputCall(each(*parts))).aggregated_payload_size == 27
            assert (await service.StreamingInputCall(part for part in parts)).aggregated_payload_size == 27
            both = greeter.SayHelloBidiStream(each(you, you))
            assert [reply.message async for reply in both] == ["Hello, you!"] * 2

    run(work())


def test_write_read_and_done_writing(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            call = channel.stream_stream("/penstock.Echo/Bidi")()
            for number in range(5):
                await call.write(b"%d" % number)
                assert await call.read() == b"%d" % number
            await call.done_writing()
            await call.done_writing()
            assert await call.read() is aio.EOF
            assert not aio.EOF
            assert await call.code() is StatusCode.OK
            assert call.done()
            error = await raises(penstock.StateError, call.write(b"late"))
            assert "done_writing" in str(error)
            upload = channel.stream_unary("/penstock.Echo/ClientStream")()
            await upload.write(b"a")
            await upload.write(b"b")
            await upload.done_writing()
            assert await upload == b"ab"
            assert await upload == b"ab"
            given = channel.stream_unary("/penstock.Echo/ClientStream")([b"c"])
            assert "were given" in str(await raises(penstock.StateError, given.write(b"d")))
            assert await given == b"c"

    run(work())


def test_metadata_code_details_and_status_details(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            probe = channel.unary_unary("/penstock.Probe/Unary", json_bytes, json.loads)
            wish = {"initial": [["x-i", "1"]], "trailing": [["x-t", "2"], ["x-b-bin", "00ff"]]}
            call = probe(wish, metadata={"x-a": "b"}, timeout=30)
            view = await call
            assert ["x-a", "b"] in view["metadata"]
            assert 0 < view["time_remaining"] <= 30
            assert (await call.initial_metadata()).get("x-i") == "1"
            assert (await call.trailing_metadata()).get("x-t") == "2"
            assert (await call.trailing_metadata()).get("x-b-bin") == b"\x00\xff"
            assert (await call.code(), await call.details()) == (StatusCode.OK, "")
            assert (await call.outcome()).stats["attempts"] == 1
            failed = probe({"code": 5, "message": "not here", "trailing": [["x-t", "3"]]})
            error = await raises(RpcError, failed)
            assert (error.code(), error.details()) == (StatusCode.NOT_FOUND, "not here")
            assert error.trailing_metadata().get("x-t") == "3"
            assert (await failed.code(), await failed.details()) == (StatusCode.NOT_FOUND, "not here")
            assert failed.done()
            assert not failed.cancelled()

    run(work())


def test_a_stream_ends_with_its_status_after_its_messages(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            stream = channel.unary_stream("/penstock.Probe/Stream", json_bytes)
            call = stream({"count": 100, "code": 9, "message": "enough"})
            got: List[bytes] = []

            async def read() -> None:
                async for message in call:
                    got.append(message)

            error = await raises(RpcError, read())
            assert len(got) == 100
            assert (error.code(), error.details()) == (StatusCode.FAILED_PRECONDITION, "enough")
            assert "FAILED_PRECONDITION" in repr(call)
            assert await call.code() is StatusCode.FAILED_PRECONDITION

    run(work())


def test_headers_of_a_stream_come_before_its_end(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            call = channel.stream_stream("/penstock.Probe/HangBidi")()
            assert (await call.initial_metadata()).get("x-none") is None
            assert not call.done()
            assert call.cancel("enough")
            assert await call.code() is StatusCode.CANCELLED
            assert await call.details() == "enough"
            assert call.cancelled()
            assert not call.cancel()

    run(work())


def test_a_deadline(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            call = channel.unary_unary("/penstock.Probe/Hang")(b"", timeout=0.05)
            assert 0 <= call.time_remaining() <= 0.05  # type: ignore[operator]
            assert (await raises(RpcError, call)).code() is StatusCode.DEADLINE_EXCEEDED
            assert channel.unary_unary("/penstock.Echo/Unary")(b"").time_remaining() is None

    run(work())


@pytest.mark.parametrize("place", ["unary", "read", "iterate", "write", "upload", "iterator"])
def test_a_cancelled_task_cancels_its_call(server: str, run: Runner, place: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    async def wait(channel: aio.Channel, calls: List[aio.Call]) -> None:
        call: Any
        if place == "unary":
            call = channel.unary_unary("/penstock.Probe/Hang")(b"")
            calls.append(call)
            await call
        elif place == "read":
            call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
            calls.append(call)
            while await call.read():
                pass
        elif place == "iterate":
            call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
            calls.append(call)
            async for _ in call:
                pass
        elif place == "write":
            call = channel.stream_stream("/penstock.Probe/HangBidi")()
            calls.append(call)
            while True:
                await call.write(bytes(100_000))
        elif place == "upload":
            call = channel.stream_stream("/penstock.Probe/HangBidi")(bytes(100_000) for _ in range(10_000))
            calls.append(call)
            await call.read()
        else:
            call = channel.stream_stream("/penstock.Probe/HangBidi")(endless())
            calls.append(call)
            await call.read()

    async def work() -> None:
        async with opened(server) as channel:
            calls: List[aio.Call] = []
            task = asyncio.create_task(wait(channel, calls))
            await hanging(channel, 1)
            assert task.cancel()
            await raises(asyncio.CancelledError, task)
            assert task.cancelled()
            await hanging(channel, 0)
            assert await calls[0].code() is StatusCode.CANCELLED
            assert await channel.unary_unary("/penstock.Echo/Unary")(b"on") == b"on"

    run(work())


def test_wait_for_gives_a_timeout_and_cancels_the_call(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            call = channel.unary_unary("/penstock.Probe/Hang")(b"")

            async def wait() -> None:
                await call

            await raises(asyncio.TimeoutError, asyncio.wait_for(wait(), 0.05))
            assert await call.code() is StatusCode.CANCELLED

    run(work())


def test_waiting_for_the_code_does_not_cancel_the_call(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
            await raises(asyncio.TimeoutError, asyncio.wait_for(call.code(), 0.02))
            assert await call.read() == b"first"
            assert not call.done()

    run(work())


def test_a_dropped_call_is_cancelled(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            calls = [channel.unary_stream("/penstock.Probe/HangStream")(b"") for _ in range(3)]
            assert [await call.read() for call in calls] == [b"first"] * 3
            await hanging(channel, 3)
            calls.clear()
            await hanging(channel, 0)

    run(work())


def test_done_callbacks(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            seen: List[Any] = []
            call = channel.unary_unary("/penstock.Echo/Unary")(b"x")
            call.add_done_callback(lambda ended: seen.append((ended, ended.done())))
            await call
            await eventually(lambda: seen == [(call, True)])
            call.add_done_callback(lambda ended: seen.append("late"))
            await eventually(lambda: len(seen) == 2)

    run(work())


def test_a_slow_reader_bounds_what_waits(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            call = channel.unary_stream("/penstock.Probe/Stream", json_bytes)({"count": 400, "size": 100_000})
            most = 0
            for number in range(400):
                assert (await call.read())[:4] == number.to_bytes(4, "big")
                # The server is faster: it has 40 MB to send.
                await turn()
                most = max(most, sum(map(len, call._running.unread)))
            assert most <= 1_000_000
            assert await call.read() is aio.EOF

    run(work())


def test_a_slow_server_holds_the_writer_back(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            call = channel.stream_stream("/penstock.Probe/HangBidi")()
            written = 0

            async def write() -> None:
                nonlocal written
                while True:
                    await call.write(bytes(100_000))
                    written += 100_000

            task = asyncio.create_task(write())
            await hanging(channel, 1)
            before = -1
            while written != before:
                before = written
                # The connection has carried all that it could before these answers.
                for _ in range(20):
                    await channel.unary_unary("/penstock.Echo/Unary")(b"x", timeout=30)
            # The send buffer, and the windows of HTTP/2.
            assert written < 20_000_000
            task.cancel()
            await raises(asyncio.CancelledError, task)

    run(work())


def test_what_a_serializer_and_an_iterator_raise_is_the_cause(server: str, run: Runner) -> None:
    def broken(_: Any) -> Any:
        raise KeyError("broken")

    async def failing() -> AsyncIterator[bytes]:
        yield b"first"
        raise OSError("no more")

    async def work() -> None:
        async with opened(server) as channel:
            with pytest.raises(RpcError) as raised:
                await channel.unary_unary("/penstock.Echo/Unary", broken)(b"x")
            assert raised.value.code() is StatusCode.INTERNAL
            assert isinstance(raised.value.__cause__, KeyError)
            error = await raises(RpcError, channel.unary_unary("/penstock.Echo/Unary", None, broken)(b"x"))
            assert (error.code(), type(error.__cause__)) == (StatusCode.INTERNAL, KeyError)
            call = channel.unary_stream("/penstock.Echo/ServerStream", None, broken)(b"x")
            error = await raises(RpcError, call.read())
            assert (error.code(), type(error.__cause__)) == (StatusCode.INTERNAL, KeyError)
            for requests in (failing(), map(broken, [1])):
                error = await raises(RpcError, channel.stream_unary("/penstock.Echo/ClientStream")(requests))
                assert error.code() is StatusCode.UNKNOWN
                assert isinstance(error.__cause__, (OSError, KeyError))
            upload = channel.stream_stream("/penstock.Echo/Bidi", broken)([1])
            error = await raises(RpcError, upload.read())
            assert (error.code(), type(error.__cause__)) == (StatusCode.INTERNAL, KeyError)
            assert await upload.code() is StatusCode.INTERNAL
            writer = channel.stream_stream("/penstock.Echo/Bidi", broken)()
            assert type((await raises(RpcError, writer.write(1))).__cause__) is KeyError

    run(work())


def test_wrong_arguments_raise_at_once(server: str, run: Runner) -> None:
    async def work() -> None:
        async with opened(server) as channel:
            echo = channel.unary_unary("/penstock.Echo/Unary")
            wrong = {"timeout": "soon", "metadata": [("a", 1)], "compression": "zip", "cancel_scope": 1}
            for keyword, value in wrong.items():
                with pytest.raises((TypeError, ValueError)):
                    echo(b"x", **{keyword: value})  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                echo(b"x", unknown=1)

    run(work())


def test_a_cancel_scope_and_interceptors_of_one_call(server: str, run: Runner) -> None:
    class Tag(penstock.Interceptor):
        def on_start(self, hop: penstock.Hop) -> None:
            hop.metadata["x-tag"] = "1"

    async def work() -> None:
        async with opened(server) as channel:
            probe = channel.unary_unary("/penstock.Probe/Unary", json_bytes, json.loads)
            assert ["x-tag", "1"] in (await probe({}, interceptors=[Tag()]))["metadata"]
            registration = channel.add_interceptor(Tag(), priority=3, methods="/penstock.Probe/*")
            assert ["x-tag", "1"] in (await probe({}))["metadata"]
            registration.remove()
            assert ["x-tag", "1"] not in (await probe({}))["metadata"]
            scope = penstock.CancelScope()
            calls = [channel.unary_unary("/penstock.Probe/Hang")(b"", cancel_scope=scope) for _ in range(3)]
            await hanging(channel, 3)
            assert scope.cancel("all of them")
            for call in calls:
                assert (await raises(RpcError, call)).details() == "all of them"

    run(work())
