"""Every member of the objects that `penstock.grpc` gives for calls, channels and futures, in each state; those of
grpcio are the same."""

from __future__ import annotations

import json
import threading
from typing import Any, Dict, Iterator, List

import grpc
import pytest

import penstock.grpc
from helpers import eventually, with_new_grpcio
from penstock._handles.status import StatusCode as Code
from penstock.grpc import _metadata
from penstock.grpc._utilities import first_version_is_lower

pytestmark = with_new_grpcio
BOTH = pytest.mark.parametrize("module", [grpc, penstock.grpc], ids=["grpcio", "penstock"])
# Where grpcio's own object raises NotImplementedError, or fails on a thread of its own.
OURS = pytest.mark.parametrize("module", [penstock.grpc], ids=["penstock"])
ECHO = "/penstock.Echo/"
WISH = json.dumps({"code": 9, "message": "not so", "initial": [["a", "1"]], "trailing": [["b", "2"]]}).encode()


@pytest.fixture
def opened(module: Any, server: str) -> Iterator[Any]:
    with module.insecure_channel(server) as channel:
        yield channel


def traceback_of(call: Any) -> Any:
    """Whether a call has a traceback."""
    return call.traceback() is not None


# ---- A call that has failed ----


@OURS
def test_the_error_of_a_call_that_has_ended(opened: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        opened.unary_unary("/penstock.Probe/Unary")(WISH)
    error: Any = caught.value
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not so")
    assert ("a", "1") in error.initial_metadata()
    assert ("b", "2") in error.trailing_metadata()
    assert "not so" in error.debug_error_string()
    assert (error.is_active(), error.running(), error.cancelled(), error.cancel()) == (False, False, False, False)
    assert (error.done(), error.time_remaining()) == (True, None)
    assert (error.exception(), traceback_of(error)) == (error, True)
    with pytest.raises(grpc.RpcError) as again:
        error.result()
    assert again.value is error
    told: List[Any] = []
    error.add_done_callback(told.append)
    assert error.add_callback(lambda: told.append("never")) is False
    assert told == [error]
    assert str(error) == repr(error)
    assert '\tstatus = StatusCode.FAILED_PRECONDITION\n\tdetails = "not so"\n\tdebug_error_string = ' in str(error)
    assert str(error).startswith("<_InactiveRpcError of RPC that terminated with:\n")
    assert str(error).endswith('"\n>')


def test_the_words_of_an_error_for_logs(server: str) -> None:
    with penstock.grpc.insecure_channel(server) as channel:
        with pytest.raises(penstock.grpc.RpcError) as caught:
            channel.unary_unary("/penstock.Probe/Unary")(WISH)
        assert caught.value.debug_error_string() == "FAILED_PRECONDITION:not so"
        # One that comes from this side has none.
        with pytest.raises(penstock.grpc.RpcError) as caught:
            channel.unary_unary("/penstock.Probe/Unary", lambda _: 1 // 0)(b"")
        assert caught.value.debug_error_string() is None
        assert caught.value.details() == "Exception serializing request!"
        call = channel.unary_unary(f"{ECHO}Unary").future(b"x")
        assert (call.code(), call.debug_error_string()) == (grpc.StatusCode.OK, "")


# ---- A call that runs ----


@BOTH
def test_a_call_that_runs_until_it_is_cancelled(opened: Any) -> None:
    call = opened.unary_stream("/penstock.Probe/HangStream")(b"", timeout=600)
    assert (call.is_active(), call.running(), call.done(), call.cancelled()) == (True, True, False, False)
    assert 0 < call.time_remaining() <= 600
    headers = call.initial_metadata()
    assert isinstance(headers, tuple)
    assert next(call) == b"first"
    assert iter(call) is call
    with pytest.raises(grpc.FutureTimeoutError):
        call.result(timeout=0.01)
    with pytest.raises(grpc.FutureTimeoutError):
        call.exception(timeout=0.01)
    with pytest.raises(grpc.FutureTimeoutError):
        call.traceback(timeout=0.01)
    assert repr(call) == str(call)
    assert "Rendezvous object>" in repr(call)
    assert call.initial_metadata() == headers
    told, done = threading.Event(), threading.Event()
    assert call.add_callback(told.set) is True
    call.add_done_callback(lambda ended: done.set() if ended is call else None)
    assert not told.is_set()
    assert call.cancel()
    assert told.wait(60)
    assert done.wait(60)
    assert (call.is_active(), call.running(), call.done(), call.cancelled()) == (False, False, True, True)
    assert (call.code(), call.details()) == (grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
    assert call.initial_metadata() == headers
    assert call.trailing_metadata() == ()
    assert call.add_callback(lambda: None) is False
    assert not call.cancel()
    for ask in (call.result, call.exception, call.traceback):
        with pytest.raises(grpc.FutureCancelledError):
            ask()
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert caught.value is call
    assert "of RPC that terminated with:\n\tstatus = StatusCode.CANCELLED\n" in str(call)


@BOTH
def test_a_future_that_ends_well(opened: Any) -> None:
    call = opened.unary_unary(f"{ECHO}Unary").future(b"x", timeout=600)
    assert call.result(timeout=600) == b"x"
    assert (call.exception(), call.traceback(), call.code()) == (None, None, grpc.StatusCode.OK)
    assert (call.is_active(), call.running(), call.done(), call.cancelled(), call.cancel()) == (
        *(False, False, True, False),
        False,
    )
    told: List[Any] = []
    call.add_done_callback(told.append)
    assert told == [call]
    without = opened.unary_unary(f"{ECHO}Unary").future(b"x")
    assert without.time_remaining() is None
    assert without.result() == b"x"


@BOTH
def test_a_future_that_fails(opened: Any) -> None:
    call = opened.unary_unary("/penstock.Probe/Unary").future(WISH)
    assert call.exception() is call
    assert traceback_of(call)
    with pytest.raises(grpc.RpcError) as caught:
        call.result()
    assert caught.value is call
    assert (call.code(), call.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not so")
    assert ("b", "2") in call.trailing_metadata()
    assert not call.cancelled()


@BOTH
def test_a_stream_that_ends_well(opened: Any) -> None:
    call = opened.stream_stream(f"{ECHO}Bidi")(iter([b"a", b"b"]))
    assert (call.next(), next(call)) == (b"a", b"b")
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(call)
    assert (call.code(), call.result(), call.exception()) == (grpc.StatusCode.OK, None, None)
    assert call.is_active() is False
    assert str(call).endswith('details = ""\n>')


# ---- Behind interceptors ----


def looking(module: Any) -> Any:
    """An interceptor by this module's names that keeps what its continuation returns, and returns that."""

    class Look(
        module.UnaryUnaryClientInterceptor,
        module.UnaryStreamClientInterceptor,
        module.StreamUnaryClientInterceptor,
        module.StreamStreamClientInterceptor,
    ):
        def __init__(self) -> None:
            self.found: List[Any] = []
            self.details: List[Any] = []

        def look(self, continuation: Any, details: Any, request: Any) -> Any:
            self.details.append(details)
            self.found.append(continuation(details, request))
            return self.found[-1]

        intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = look

    return Look()


KEYWORDS: Dict[str, Any] = {"timeout": 600, "metadata": (("a", "1"),), "wait_for_ready": True}


@BOTH
def test_the_details_that_an_interceptor_sees(module: Any, opened: Any) -> None:
    look = looking(module)
    intercepted = module.intercept_channel(opened, look)
    compression = module.Compression.Gzip
    given = {**KEYWORDS, "compression": compression}
    assert intercepted.unary_unary(f"{ECHO}Unary")(b"x", **given) == b"x"
    assert intercepted.unary_unary(f"{ECHO}Unary").with_call(b"x", **given)[0] == b"x"
    assert intercepted.unary_unary(f"{ECHO}Unary").future(b"x", **given).result() == b"x"
    assert list(intercepted.unary_stream(f"{ECHO}ServerStream")(b"x", **given)) == [b"x"]
    assert intercepted.stream_unary(f"{ECHO}ClientStream")(iter([b"x"]), **given) == b"x"
    assert intercepted.stream_unary(f"{ECHO}ClientStream").with_call(iter([b"x"]), **given)[0] == b"x"
    assert intercepted.stream_unary(f"{ECHO}ClientStream").future(iter([b"x"]), **given).result() == b"x"
    assert list(intercepted.stream_stream(f"{ECHO}Bidi")(iter([b"x"]), **given)) == [b"x"]
    methods = ["Unary"] * 3 + ["ServerStream"] + ["ClientStream"] * 3 + ["Bidi"]
    assert [each.method for each in look.details] == [ECHO + name for name in methods]
    for each in look.details:
        assert (each.timeout, each.metadata, each.credentials) == (600, (("a", "1"),), None)
        assert (each.wait_for_ready, each.compression) == (True, compression)
    for call in look.found:
        assert call.code() is grpc.StatusCode.OK


@BOTH
def test_a_call_that_has_ended_with_a_response(module: Any, opened: Any) -> None:
    look = looking(module)
    probe = module.intercept_channel(opened, look).unary_unary("/penstock.Probe/Unary")
    probe(json.dumps({"initial": [["a", "1"]], "trailing": [["b", "2"]]}).encode(), timeout=600)
    (call,) = look.found
    assert ("a", "1") in call.initial_metadata()
    assert ("b", "2") in call.trailing_metadata()
    assert (call.code(), call.details()) == (grpc.StatusCode.OK, "")
    assert (call.is_active(), call.cancelled(), call.running(), call.done()) == (False, False, False, True)
    assert (call.exception(), call.traceback(), call.cancel()) == (None, None, False)
    assert b"metadata" in call.result()
    assert call.add_callback(lambda: None) is False
    told: List[Any] = []
    call.add_done_callback(told.append)
    assert told == [call]


@BOTH
@pytest.mark.parametrize("kind", ["future", "stream"])
def test_a_call_in_which_an_interceptor_has_raised(module: Any, opened: Any, kind: str) -> None:
    class Breaks(module.UnaryUnaryClientInterceptor, module.StreamStreamClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            raise LookupError("no")

        intercept_stream_stream = intercept_unary_unary

    intercepted = module.intercept_channel(opened, Breaks())
    if kind == "future":
        call = intercepted.unary_unary(f"{ECHO}Unary").future(b"x")
    else:
        call = intercepted.stream_stream(f"{ECHO}Bidi")(iter([b"x"]))
    assert isinstance(call, grpc.RpcError)
    assert (call.code(), call.details()) == (
        grpc.StatusCode.INTERNAL,
        "Exception raised while intercepting the RPC",
    )
    assert (call.initial_metadata(), call.trailing_metadata(), call.time_remaining()) == (None, None, None)
    assert (call.is_active(), call.running(), call.cancelled(), call.cancel()) == (False, False, False, False)
    assert call.done() is True
    assert isinstance(call.exception(), LookupError)
    assert traceback_of(call)
    assert call.add_callback(lambda: None) is False
    assert iter(call) is call
    for ask in (call.result, lambda: next(call)):
        with pytest.raises(LookupError, match="no"):
            ask()
    if module is not grpc:
        with pytest.raises(LookupError, match="no"):
            call.next()
    told: List[Any] = []
    call.add_done_callback(told.append)
    assert told == [call]


@OURS
def test_the_channel_behind_an_interceptor(module: Any, server: str) -> None:
    states: List[Any] = []
    with module.intercept_channel(module.insecure_channel(server), looking(module)) as channel:
        channel.subscribe(states.append, try_to_connect=True)
        eventually(lambda: grpc.ChannelConnectivity.READY in states)
        channel.unsubscribe(states.append)
        module.channel_ready_future(channel).result(timeout=60)
        echo = channel.unary_unary(f"{ECHO}Unary")
        assert echo(b"x") == b"x"
    with pytest.raises(ValueError, match="closed"):
        echo(b"x")
    other = module.intercept_channel(module.insecure_channel(server), looking(module))
    other.close()
    with pytest.raises(ValueError, match="closed"):
        other.unary_unary(f"{ECHO}Unary")(b"x")


@BOTH
def test_what_is_no_interceptor(module: Any, opened: Any) -> None:
    with pytest.raises(TypeError, match="interceptor must be"):
        module.intercept_channel(opened, looking(module), object())
    assert module.intercept_channel(opened) is opened


@BOTH
def test_the_first_interceptor_sees_a_call_first(module: Any, opened: Any) -> None:
    order: List[str] = []

    def named(name: str) -> Any:
        class Named(module.UnaryUnaryClientInterceptor):  # type: ignore[misc]
            def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
                order.append(name)
                return continuation(details, request)

        return Named()

    channel = module.intercept_channel(opened, named("first"), named("second"), looking(module))
    assert channel.unary_unary(f"{ECHO}Unary")(b"x") == b"x"
    # One that is for another kind of call takes no part.
    assert list(channel.unary_stream(f"{ECHO}ServerStream")(b"x")) == [b"x"]
    assert order == ["first", "second"]


# ---- The future of a channel that gets ready ----


@BOTH
def test_a_channel_that_is_ready(module: Any, opened: Any) -> None:
    future = module.channel_ready_future(opened)
    assert future.result(timeout=60) is None
    assert (future.done(), future.running(), future.cancelled(), future.cancel()) == (True, False, False, False)
    assert (future.exception(), future.traceback()) == (None, None)
    told: List[Any] = []
    future.add_done_callback(told.append)
    assert told == [future]


@OURS
def test_a_channel_that_does_not_get_ready(module: Any) -> None:
    with module.insecure_channel("127.0.0.1:1") as channel:
        future = module.channel_ready_future(channel)
        assert (future.done(), future.running(), future.cancelled()) == (False, True, False)
        for ask in (future.result, future.exception, future.traceback):
            with pytest.raises(grpc.FutureTimeoutError):
                ask(timeout=0.01)
        told: List[Any] = []
        future.add_done_callback(told.append)
        assert told == []
        assert future.cancel() is True
        assert told == [future]
        assert (future.done(), future.running(), future.cancelled()) == (True, False, True)
        assert future.cancel() is True
        for ask in (future.result, future.exception, future.traceback):
            with pytest.raises(grpc.FutureCancelledError):
                ask()


def test_a_function_that_raises_keeps_no_other_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    with penstock.grpc.insecure_channel("127.0.0.1:1") as channel:
        future = penstock.grpc.channel_ready_future(channel)
        told: List[Any] = []
        future.add_done_callback(lambda _: 1 // 0)
        future.add_done_callback(told.append)
        future.cancel()
    assert told == [future]
    assert [record.getMessage() for record in caplog.records] == ["a callback of a channel_ready_future raised"]


# ---- Small parts ----


@pytest.mark.parametrize(
    ("first", "second", "is_lower"),
    [
        ("1.60.1", "1.60.2", True),
        ("1.60.2", "1.60.1", False),
        ("1.60.1", "1.60.1", False),
        ("1.9.0", "1.10.0", True),
        ("1.10.0", "1.9.0", False),
        ("1.60.1", "1.60.1.dev0", True),
        ("1.60.1.dev0", "1.60.1", False),
        ("1.60.1.dev0", "1.60.1.dev0", False),
        ("1.60.1.dev0", "1.61.0", True),
        ("2.0.0", "1.99.99", False),
        ("1.60.x", "1.60.1", False),
        ("1.60.1", "new", False),
    ],
)
def test_versions(first: str, second: str, is_lower: bool) -> None:
    assert first_version_is_lower(first, second) is is_lower


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        (None, []),
        ((), []),
        ([("a", "1"), ("a", "2"), ("b-bin", b"\x00")], [("a", "1"), ("a", "2"), ("b-bin", b"\x00")]),
        ([(b"a", b"1"), ("b", None), ("c", " x ")], [("a", "1"), ("b", ""), ("c", "x")]),
        ([("te", "x"), ("grpc-x", "1"), ("host", "h"), ("x-te", "y"), ("user-agent", "z")], [("x-te", "y")]),
        ([("a_b.c-9", "~ !")], [("a_b.c-9", "~ !")]),
    ],
)
def test_metadata_that_is_sent(given: Any, pairs: Any) -> None:
    assert _metadata.outgoing(given) == pairs


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([("a-bin", "text")], TypeError, "Binary metadata key=\"a-bin\" expected bytes, got <class 'str'>"),
        ([("a", 1)], TypeError, "Expected str, not <class 'int'>"),
        ([(1, "a")], TypeError, "Expected str, not <class 'int'>"),
        ([("A", "1")], _metadata.InvalidMetadata, ""),
        ([("", "1")], _metadata.InvalidMetadata, ""),
        ([("a", "\n")], _metadata.InvalidMetadata, ""),
        ([("a", "ü")], _metadata.InvalidMetadata, ""),
        ([("a\n", "1")], _metadata.InvalidMetadata, ""),
        # A later pair that is right changes nothing.
        ([("A", "1"), ("b", "2")], _metadata.InvalidMetadata, ""),
        ([("a", "\n"), ("b", "2")], _metadata.InvalidMetadata, ""),
    ],
)
def test_metadata_that_can_not_be_sent(given: Any, error: Any, words: str) -> None:
    with pytest.raises(error) as caught:
        _metadata.outgoing(given)
    assert str(caught.value) == words


def test_the_status_of_a_channel_that_is_closed(server: str) -> None:
    channel = penstock.grpc.insecure_channel(server)
    call = channel.unary_unary("/penstock.Probe/Hang").future(b"")
    channel.close()
    assert (call.code(), call.details()) == (grpc.StatusCode.CANCELLED, "Channel closed!")
    assert penstock.grpc.StatusCode.CANCELLED.value[0] == Code.CANCELLED.number
    channel.close()
