"""The same program on grpc.aio's channel and on ours: its user sees the same. aio_scenarios.py and
aio_end_scenarios.py have the programs."""

from __future__ import annotations

import asyncio
import operator
from typing import Any, Awaitable, Callable, Dict, List

import grpc.aio
import pytest

import penstock.grpc.aio
from aio_end_scenarios import streaming
from aio_helpers import LOOPS, each, eventually, run_on, turn
from aio_scenarios import (
    BIDI,
    CLIENT,
    HANG,
    HANG_STREAM,
    PROBE,
    SCENARIOS,
    SERVER,
    STREAM,
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
from helpers import with_new_grpcio
from penstock._aio.running import Running

pytestmark = with_new_grpcio

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
        call = await continuation(details, request)
        if isinstance(request, dict) and "code" in request:
            # A failure of the call is then an exception of the interceptor.
            await call
        return call


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
    seen.append((await outcome(failed), await everything(failed), failed.cancelled()))
    cancelled = channel.unary_unary(PROBE, json_bytes)({"code": 1, "message": "by the server"})
    seen.append((await outcome(cancelled), cancelled.done(), cancelled.cancelled(), cancelled.cancel()))
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


def test_a_wait_for_a_connection_that_does_not_come(server: str) -> None:
    async def use() -> None:
        async with penstock.grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.stream_stream(BIDI)().wait_for_connection()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            waiting = channel.stream_stream(BIDI)(wait_for_ready=True)
            waits = asyncio.ensure_future(waiting.wait_for_connection())
            await turn()
            assert not waits.done()
            await channel.close()
            with pytest.raises(asyncio.CancelledError):
                await waits
            assert await waiting.code() is grpc.StatusCode.CANCELLED

    asyncio.run(use())


def test_interceptors_appended_as_googles_clients_do(server: str) -> None:
    """They see a call between those with a priority above and below 0."""
    log: List[Any] = []

    class Named(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.name = name

        async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            log.append(self.name)
            return await continuation(details, request)

    async def use() -> None:
        async with penstock.grpc.aio.insecure_channel(server, interceptors=[Named("made with")]) as channel:
            channel._unary_unary_interceptors.append(Named("appended"))
            for name, priority in (("below", -1), ("added", 0), ("above", 1)):
                channel.add_interceptor(Named(name), priority)
            assert await channel.unary_unary(UNARY)(b"x") == b"x"

    asyncio.run(use())
    assert log == ["above", "made with", "appended", "added", "below"]


def test_classes_are_those_of_grpcio() -> None:
    own = {"InterceptedUnaryUnaryCall", "insecure_channel", "secure_channel"}
    assert set(penstock.grpc.aio.__all__) == set(grpc.aio.__all__)
    for name in grpc.aio.__all__:
        assert (getattr(penstock.grpc.aio, name) is getattr(grpc.aio, name)) == (name not in own)


def test_our_own_classes_are_like_those_of_grpcio() -> None:
    """Where grpcio can't be imported: the same bases, abstract methods, values and exceptions."""
    from penstock.grpc.aio import _abstract

    own = {"InterceptedUnaryUnaryCall", "insecure_channel", "secure_channel", "server", "init_grpc_aio"}
    for name in sorted(set(grpc.aio.__all__) - own - {"shutdown_grpc_aio", "EOF", "Server", "ServicerContext"}):
        theirs, ours = getattr(grpc.aio, name), getattr(_abstract, name)
        names = [base.__name__ for base in theirs.__mro__ if base.__module__.startswith(("grpc.aio", "grpc._cython"))]
        assert [base.__name__ for base in ours.__mro__ if base.__name__ in names] == names
        if name != "ServerInterceptor":
            abstract: Any = getattr(theirs, "__abstractmethods__", ())
            assert set(getattr(ours, "__abstractmethods__", ())) == set(abstract)
    assert (bool(_abstract.EOF), len(_abstract.EOF), repr(_abstract.EOF)) == (False, 0, repr(grpc.aio.EOF))
    seen = [used_metadata(module.Metadata) for module in (grpc.aio, _abstract)]
    assert seen[0] == seen[1]
    given = (grpc.StatusCode.NOT_FOUND, None, None, "nothing", "debug")
    errors = [module.AioRpcError(*given) for module in (grpc.aio, _abstract)]
    assert repr(errors[0]) == repr(errors[1])
    assert errors[0].__reduce__()[1:] == errors[1].__reduce__()[1:] == (given,)
    details = [module.ClientCallDetails(b"/a/b", 1.0, None, None, True) for module in (grpc.aio, _abstract)]
    assert details[0] == details[1]
    assert details[0]._fields == details[1]._fields


def used_metadata(kind: Any) -> List[Any]:
    metadata = kind(("a", "1"), ("b", "2"), ("a", "3"))
    seen: List[Any] = [list(metadata), len(metadata), metadata["a"], "a" in metadata, "c" in metadata, 1 in metadata]
    seen += [list(view) for view in (metadata.keys(), metadata.values(), metadata.items())]
    seen += [metadata.get("b"), metadata.get("c"), metadata.get("c", 5), metadata.get_all("a"), metadata.get_all("c")]
    metadata["a"] = "4"
    metadata["c"] = "5"
    metadata.add("c", "6")
    metadata.set_all("d", ["7", "8"])
    seen += [repr(metadata), metadata == tuple(metadata), metadata == kind(*metadata), metadata == [], str(metadata)]
    del metadata["a"]
    seen.append(list(metadata))
    del metadata["a"]
    metadata.delete_all("d")
    seen += [
        list(metadata),
        list(operator.add(metadata, (("x", "y"),))),
        list(metadata + metadata),
        list(kind.from_tuple(None)),
    ]
    for act in (
        lambda: metadata["z"],
        lambda: metadata.delete_all("z"),
        lambda: operator.add(metadata, []),
        lambda: hash(metadata),
    ):
        with pytest.raises((KeyError, TypeError)) as caught:
            act()
        seen.append(caught.type)
    return seen


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
        assert await cause(collect(both)) == (grpc.aio.AioRpcError, KeyError)
        assert await both.code() is grpc.StatusCode.INTERNAL
        channel.penstock.add_interceptor(Broken())
        assert await cause(channel.unary_unary(UNARY)(b"x")) == (grpc.aio.AioRpcError, LookupError)

    penstock.set_exception_hook(lambda *_: None)
    try:
        result(server, penstock.grpc.aio, work, "asyncio")
    finally:
        penstock.set_exception_hook(None)


def test_serializers_and_deserializers_that_raise_end_their_calls(server: str) -> None:
    """Making the call gives its object, as in grpc.aio; but in the place of what could not be made the server gets no
    empty message, and the program no None."""
    good: List[Any] = []

    async def ended(call: Any, use: Callable[[Any], Awaitable[Any]]) -> None:
        told: List[Any] = []
        call.add_done_callback(lambda ended: told.append(ended is call))
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match=r"Exception (de)?serializing") as caught:
                await use(call)
            assert type(caught.value.__cause__) is KeyError
        seen = call.done(), call.cancelled(), await call.code(), call.cancel(), await call.trailing_metadata()
        assert seen == (True, False, grpc.StatusCode.INTERNAL, False, grpc.aio.Metadata())
        assert isinstance(await call.initial_metadata(), grpc.aio.Metadata)
        assert (await call.details()).startswith("Exception ")
        await eventually(lambda: told == [True])

    async def wait(call: Any) -> Any:
        return await call

    async def read(call: Any) -> Any:
        return await call.read()

    async def work(channel: Any) -> None:
        repeat = (("x-repeat", "3"),)
        await ended(channel.unary_unary(UNARY, broken_serializer)(b"x"), wait)
        await ended(channel.unary_unary(UNARY, broken_serializer)(b"x", metadata=repeat), wait)
        await ended(channel.unary_stream(SERVER, broken_serializer)(b"x"), read)
        await ended(channel.stream_unary(CLIENT, broken_serializer)([b"x"]), wait)
        await ended(channel.unary_unary(UNARY, None, broken_serializer)(b"x"), wait)
        await ended(channel.stream_unary(CLIENT, None, broken_serializer)([b"x"]), wait)
        await ended(channel.unary_stream(SERVER, None, broken_serializer)(b"x", metadata=repeat), read)
        await ended(channel.unary_stream(HANG_STREAM, None, broken_serializer)(b""), read)
        iterated = channel.unary_stream(SERVER, None, broken_serializer)(b"x", metadata=repeat)
        assert (await outcome(collect(iterated)))[:2] == (grpc.aio.AioRpcError, grpc.StatusCode.INTERNAL)
        # The writer knows which message is missing, and may go on, as in grpc.aio.
        written = channel.stream_unary(CLIENT, lambda message: message or broken_serializer(message))()
        for message in (b"a", b"", b"b"):
            good.append(await outcome(written.write(message)))
        await written.done_writing()
        assert [each and each[1] for each in good] == [None, grpc.StatusCode.INTERNAL, None]
        assert (await written, await written.code()) == (b"ab", grpc.StatusCode.OK)

    for loop in LOOPS:
        good.clear()
        result(server, penstock.grpc.aio, work, loop)


def test_a_close_with_grace_does_not_wait_for_a_reader_that_is_gone(server: str) -> None:
    async def work(channel: Any) -> None:
        call = await streaming(channel, {"count": 3})
        closing = asyncio.ensure_future(channel.close(3600))
        for _ in range(10):
            await turn()
        assert not closing.done()
        del call
        await closing

    result(server, penstock.grpc.aio, work, "asyncio")


def test_a_close_after_one_that_was_cancelled_ends_what_is_left_unread(server: str) -> None:
    async def work() -> None:
        channel = penstock.grpc.aio.insecure_channel(server)
        call = channel.unary_stream(STREAM, json_bytes)({"count": 3})
        await call.read()
        # The answer comes behind the end of the stream.
        await channel.unary_unary(UNARY)(b"")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(channel.close(60), 0.1)
        assert not call.done()
        await channel.close()
        assert call.done()
        assert await call.code() is grpc.StatusCode.CANCELLED

    run_on(LOOPS["asyncio"], work())


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_those_that_are_told_of_the_end_come_before_those_that_wait(
    server: str, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a task that waits goes on for another reason just when the end comes."""
    over = Running.over

    def wake_before(running: Running, reply: int) -> None:
        running.wake(running.readers)
        over(running, reply)

    async def main() -> List[str]:
        async with penstock.grpc.aio.insecure_channel(server) as channel:
            log: List[str] = []
            call = channel.stream_unary("/penstock.Echo/ClientStream")()

            async def wait() -> None:
                await call.code()
                log.append("waits")

            task = asyncio.ensure_future(wait())
            await turn()
            call.add_done_callback(lambda _: log.append("is told"))
            await call.done_writing()
            await task
            return log

    monkeypatch.setattr(Running, "over", wake_before)
    assert run_on(LOOPS[loop], main()) == ["is told", "waits"]


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


def test_a_calls_credentials_on_a_channel_with_insecure_credentials(server: str) -> None:
    """The call ends, as in grpc.aio; nothing goes to the server."""

    async def ends(package: Any, sync: Any) -> List[Any]:
        token = sync.access_token_call_credentials("secret")
        cleartext = sync.experimental.insecure_channel_credentials()
        seen = []
        async with package.secure_channel(server, cleartext) as channel:
            for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
                method = getattr(channel, kind)("/penstock.Echo/Unary")
                request = b"" if kind.startswith("unary") else iter([b""])
                call = method(request, credentials=token)
                seen.append((await call.code(), await call.details()))
        return seen

    theirs = run_on(LOOPS["asyncio"], ends(grpc.aio, grpc))
    assert theirs[0][0] is grpc.StatusCode.UNAUTHENTICATED
    assert run_on(LOOPS["asyncio"], ends(penstock.grpc.aio, penstock.grpc)) == theirs


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
