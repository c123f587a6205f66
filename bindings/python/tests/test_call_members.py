"""Every member of a blocking call in each state, and the parts that calls are made of: encodings, scopes and
batches of requests."""

from __future__ import annotations

import gc
import json
import logging
import sys
import threading
from contextvars import copy_context
from typing import Any, List

import pytest

import penstock
from conftest import await_hanging
from helpers import Only, eventually, on_thread, unary
from penstock import CancelScope, Channel, Hop, RpcError, StatusCode, Uncompressed
from penstock._calls import batch
from penstock._calls.encoding import _class_of
from penstock._calls.keywords import CallKeywords
from penstock._calls.requests import Requests

ECHO = "/penstock.Echo/"
HANG = "/penstock.Probe/HangStream"
LOCALLY = "Locally cancelled by application!"

# ---- Calls ----


def test_a_call_that_runs_and_is_cancelled(channel: Channel) -> None:
    call = channel.unary_stream(HANG)(b"", timeout=600, trace=True)
    assert next(call) == b"first"
    assert iter(call) is call
    assert (call.is_active(), call.running(), call.done(), call.cancelled()) == (True, True, False, False)
    remaining = call.time_remaining()
    assert remaining is not None
    assert 0 < remaining <= 600
    assert repr(call) == f"<penstock.Call {call.call_id}, running>"
    assert call.call_id > 0
    assert call.trace["method"] == HANG
    for wait in (call.result, call.exception, call.traceback):
        with pytest.raises(penstock.TimedOutError) as late:
            wait(timeout=0.01)
        assert late.value.message == "the call has not ended within 0.01 s"
    told: List[Any] = []
    assert call.add_callback(lambda: told.append("callback")) is True
    call.add_done_callback(told.append)
    assert told == []
    assert call.cancel("enough") is True
    assert (call.code(), call.details()) == (StatusCode.CANCELLED, "enough")
    eventually(lambda: told == ["callback", call])
    assert (call.is_active(), call.running(), call.done(), call.cancelled()) == (False, False, True, True)
    assert call.cancel() is False
    assert repr(call) == f"<penstock.Call {call.call_id}, CANCELLED>"
    assert call.add_callback(lambda: told.append("never")) is False
    call.add_done_callback(told.append)
    assert told == ["callback", call, call]
    with pytest.raises(RpcError) as caught:
        call.result()
    assert (caught.value.code(), caught.value.details()) == (StatusCode.CANCELLED, "enough")
    error = call.exception()
    assert error is not None
    assert error.code() is StatusCode.CANCELLED
    with pytest.raises(RpcError):
        next(call)
    assert call.trailing_metadata() == ()
    assert call.trace["ended"] is True


def test_the_words_of_a_cancel_without_a_reason(channel: Channel) -> None:
    call = channel.unary_unary("/penstock.Probe/Hang").future(b"")
    assert call.time_remaining() is None
    assert call.cancel()
    assert (call.code(), call.details()) == (StatusCode.CANCELLED, LOCALLY)
    # A deadline that has passed leaves no time; the server may tell of it a little earlier.
    late = channel.unary_unary("/penstock.Probe/Hang").future(b"", timeout=0.01)
    assert late.code() is StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: late.time_remaining() == 0)


def test_a_future_that_ends_well(channel: Channel) -> None:
    for call in (
        channel.unary_unary(f"{ECHO}Unary").future(b"x"),
        channel.stream_unary(f"{ECHO}ClientStream").future([b"x"]),
    ):
        assert (call.result(), call.result(timeout=0), call.exception(), call.traceback()) == (b"x", b"x", None, None)
        assert (call.code(), call.details(), call.cancelled()) == (StatusCode.OK, "", False)
        assert (call.is_active(), call.done(), call.cancel()) == (False, True, False)
        assert repr(call) == f"<penstock.Call {call.call_id}, OK>"


def test_a_stream_that_ends_well(channel: Channel) -> None:
    call = channel.unary_stream(f"{ECHO}ServerStream")(b"x", metadata={"x-repeat": "2"})
    assert [next(call), next(call)] == [b"x", b"x"]
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(call)
    assert (call.result(), call.exception(), call.code()) == (None, None, StatusCode.OK)


def test_a_response_that_can_not_be_deserialized(channel: Channel) -> None:
    def broken(data: bytes) -> Any:
        raise LookupError("no")

    future = channel.unary_unary(f"{ECHO}Unary", None, broken).future(b"x")
    for _ in range(2):
        with pytest.raises(RpcError) as caught:
            future.result()
        assert (caught.value.code(), caught.value.details()) == (
            StatusCode.INTERNAL,
            "Exception deserializing response!",
        )
        assert isinstance(caught.value.__cause__, LookupError)
    assert (future.code(), future.details()) == (StatusCode.INTERNAL, "Exception deserializing response!")
    stream = channel.unary_stream(HANG, None, broken)(b"")
    with pytest.raises(RpcError, match="Exception deserializing response!"):
        next(stream)
    assert stream.code() is StatusCode.INTERNAL
    # The call has been cancelled at the server.
    await_hanging(channel, 0)


def test_requests_that_are_written(channel: Channel) -> None:
    call = channel.stream_stream(f"{ECHO}Bidi")()
    assert call.write(b"a") is True
    assert next(call) == b"a"
    with pytest.raises(RpcError, match="Exception serializing request!"):
        channel.stream_stream(f"{ECHO}Bidi", lambda _: 1 // 0)().write(b"a")
    call.done_writing()
    call.done_writing()
    assert list(call) == []
    assert call.write(b"c") is False
    call.done_writing()
    hanging = channel.stream_stream("/penstock.Probe/HangBidi")()
    hanging.done_writing()
    with pytest.raises(penstock.StateError):
        hanging.write(b"b")
    hanging.cancel()


def test_a_call_with_an_iterator_that_raises(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock")

    def breaks() -> Any:
        yield b"a"
        raise LookupError("no")

    call = channel.stream_stream(f"{ECHO}Bidi")(breaks())
    with pytest.raises(RpcError) as caught:
        list(call)
    assert (caught.value.code(), caught.value.details()) == (StatusCode.UNKNOWN, "Exception iterating requests!")
    assert isinstance(caught.value.__cause__, LookupError)
    assert (call.code(), call.details()) == (StatusCode.UNKNOWN, "Exception iterating requests!")
    assert [record.getMessage() for record in caplog.records] == ["the request iterator raised"]
    assert caplog.records[0].levelno == logging.DEBUG


def test_a_message_over_the_limit(channel: Channel) -> None:
    said = "the message to be sent is larger than the limit (3 bytes)"
    calls = (
        lambda: channel.unary_unary(f"{ECHO}Unary")(b"abc", max_send_message_bytes=2),
        lambda: channel.unary_unary(f"{ECHO}Unary")(Uncompressed(b"abc"), max_send_message_bytes=2),
        lambda: channel.unary_unary(f"{ECHO}Unary").future(b"abc", max_send_message_bytes=2),
        lambda: channel.stream_unary(f"{ECHO}ClientStream")([b"a", b"abc"], max_send_message_bytes=2),
        lambda: channel.stream_stream(f"{ECHO}Bidi")(max_send_message_bytes=2).write(b"abc"),
    )
    for call in calls:
        with pytest.raises(RpcError) as caught:
            call()
        assert (caught.value.code(), caught.value.details()) == (StatusCode.RESOURCE_EXHAUSTED, said)
    assert unary(channel, b"ab", max_send_message_bytes=2) == b"ab"


def test_a_handle_is_gone_with_its_call(channel: Channel) -> None:
    call = channel.unary_stream(HANG)(b"")
    assert next(call) == b"first"
    line = call._line
    assert line.handle is call._call
    del call
    eventually(lambda: gc.collect() >= 0 and line.handle.value is None)  # type: ignore[attr-defined]
    await_hanging(channel, 0)


# ---- Scopes ----


def test_a_scope_cancels_once(channel: Channel) -> None:
    scope = CancelScope()
    calls = [channel.unary_stream(HANG)(b"", cancel_scope=scope) for _ in range(2)]
    assert [next(call) for call in calls] == [b"first"] * 2
    assert repr(scope).startswith("<penstock.CancelScope 0x")
    with pytest.raises(penstock.InvalidArgumentError, match="a reason contains a NUL"):
        scope.cancel("a\0")
    assert scope.cancel("enough") is True
    assert scope.cancel("again") is False
    calls.append(channel.unary_stream(HANG)(b"", cancel_scope=scope))
    assert [(call.code(), call.details()) for call in calls] == [(StatusCode.CANCELLED, "enough")] * 3


# ---- Encodings ----


def test_the_json_of_plain_objects() -> None:
    codec = penstock.JSONCodec()
    assert codec.name == "json"
    assert codec.encode({"a": [1, None, "ü"]}) == '{"a":[1,null,"ü"]}'.encode()
    assert codec.decode(b'{"a": 1}', None) == {"a": 1}


def test_a_codec_has_both_functions() -> None:
    for use in (lambda: penstock.Codec().encode(1), lambda: penstock.Codec().decode(b"", None)):
        with pytest.raises(NotImplementedError):
            use()


def test_the_json_of_messages(stubs: str) -> None:
    import helloworld_pb2
    import testing_pb2

    codec = penstock.ProtobufJSONCodec()
    assert codec.name == "json"
    assert codec.encode(helloworld_pb2.HelloRequest(name="ü")) == '{"name": "ü"}'.encode()
    read = codec._deserializer(helloworld_pb2.HelloReply.FromString)
    assert read is not None
    assert read(b'{"message": "a", "unknown": 1}') == helloworld_pb2.HelloReply(message="a")
    assert _class_of(testing_pb2.Empty.FromString) is testing_pb2.Empty
    for wrong in (None, len, json.loads, str.upper):
        with pytest.raises(TypeError, match=r"^ProtobufJSONCodec needs to know the class of the responses: "):
            codec._deserializer(wrong)  # type: ignore[arg-type]


def test_where_protobuf_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        penstock.ProtobufJSONCodec()
    assert str(caught.value) == "ProtobufJSONCodec needs the package protobuf (pip install protobuf)"
    assert caught.value.name == "google.protobuf"


class Sees(penstock.Interceptor):
    """Sees the objects of requests and responses."""

    level = penstock.Level.OBJECT

    def __init__(self) -> None:
        self.seen: List[Any] = []

    def on_send(self, hop: Hop) -> None:
        self.seen.append(hop.message)

    on_receive = on_send


def test_objects_and_the_words_where_they_fail(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    sees = Sees()
    channel.add_interceptor(sees)
    call = channel.unary_unary(f"{ECHO}Unary", lambda thing: str(thing).encode(), lambda data: [int(data)])
    assert call(5) == [5]
    assert sees.seen == [5, [5]]
    assert call(Uncompressed(6)) == [6]
    with pytest.raises(RpcError) as caught:
        call("x")
    assert caught.value.code() is StatusCode.INTERNAL
    wrong = channel.unary_unary(f"{ECHO}Unary", lambda thing: thing, lambda data: data)
    with pytest.raises(RpcError) as caught:
        wrong("no bytes")
    assert caught.value.code() is StatusCode.INTERNAL
    assert [record.getMessage() for record in caplog.records] == [
        f"a response of {ECHO}Unary can't be deserialized",
        f"a request of {ECHO}Unary can't be serialized",
    ]


@pytest.mark.parametrize(
    ("serializer", "deserializer", "sent", "received"),
    [
        (None, None, b"5", b"5"),
        (lambda thing: str(thing).encode(), None, 5, b"5"),
        (None, int, b"5", 5),
        (lambda thing: str(thing).encode(), int, 5, 5),
    ],
)
def test_objects_of_methods_with_one_function(
    channel: Channel, serializer: Any, deserializer: Any, sent: Any, received: Any
) -> None:
    sees = Sees()
    channel.add_interceptor(sees)
    assert channel.unary_unary(f"{ECHO}Unary", serializer, deserializer)(sent) == received
    assert list(channel.stream_stream(f"{ECHO}Bidi", serializer, deserializer)([sent])) == [received]
    assert sees.seen == [sent, received] * 2
    assert [type(one) for one in sees.seen] == [type(sent), type(received)] * 2


def test_a_codec_is_made_where_objects_are_seen(channel: Channel) -> None:
    context = copy_context()
    plain, sees = CallKeywords(), CallKeywords(interceptors=[Sees()])
    both = channel.unary_unary(f"{ECHO}Unary", str.encode, bytes.decode)
    bare = channel.unary_unary(f"{ECHO}Unary")
    assert both._codec(plain, context) is None
    assert both._codec(sees, context) is not None
    assert bare._codec(sees, context) is None
    channel.add_interceptor(Sees())
    assert both._codec(plain, context) is not None
    assert channel.unary_unary(f"{ECHO}Unary", None, bytes.decode)._codec(plain, context) is not None
    assert channel.unary_unary(f"{ECHO}Unary", str.encode)._codec(plain, context) is not None
    assert bare._codec(plain, context) is None


# ---- Requests ----


def requests(given: Any, serializer: Any = None) -> Requests:
    return Requests(given, serializer, None, copy_context())


def sizes(given: Any) -> List[List[int]]:
    return [[len(data) for data in each] for each in requests(given).batches()]  # type: ignore[arg-type]


def test_batches_of_requests() -> None:
    assert (batch.MOST, batch.SIZE) == (64, 65536)
    assert sizes([]) == []
    assert sizes([b"a"] * 64) == [[1] * 64]
    assert sizes([b"a"] * 65) == [[1] * 64, [1]]
    assert sizes((bytes(65535), b"a", b"b")) == [[65535, 1], [1]]
    assert sizes([bytes(65536), b"a"]) == [[65536], [1]]
    assert sizes([bytes(65534), b"a", b"b", b"c"]) == [[65534, 1, 1], [1]]
    # An iterator may wait for the answer to the request before.
    assert sizes(iter([b"a", b"b"])) == [[1], [1]]
    assert (requests([]).is_ready, requests(()).is_ready, requests(iter([])).is_ready) == (True, True, False)


def test_which_requests_cross_together() -> None:
    assert batch.is_plain([b"a", b"b"])
    assert not batch.is_plain([b"a"])
    assert not batch.is_plain([])
    assert not batch.is_plain([b"a", Uncompressed(b"b")])
    assert batch.size_of(b"abc") == batch.size_of(Uncompressed(b"abc")) == 3
    assert batch.size_of(object()) == 0  # type: ignore[arg-type]


def test_a_request_that_can_not_be_serialized_ends_the_others() -> None:
    made = requests([1, 2, 3], lambda number: b"x" * (4 // (number - 2)) if number == 2 else b"x")
    assert list(made) == [b"x"]
    assert made.failure is not None
    assert (made.failure.code(), made.failure.details()) == (StatusCode.INTERNAL, "Exception serializing request!")


def test_batches_that_have_come(channel: Channel) -> None:
    """Messages of all sizes come whole, and in their order."""
    for size in (0, 1, 1000, 65535, 65536, 65537, 200_000):
        given = [bytes([number]) * size for number in range(5)]
        assert list(channel.stream_stream(f"{ECHO}Bidi")(given)) == given
    mixed = [bytes(size) for size in (3, 70_000, 0, 65_536, 1, 5)]
    assert list(channel.stream_stream(f"{ECHO}Bidi")(mixed)) == mixed
    assert list(channel.stream_stream(f"{ECHO}Bidi")([Uncompressed(b"a"), b"b"])) == [b"a", b"b"]


# ---- Side calls ----


@pytest.mark.parametrize("from_top", [False, True])
def test_a_side_call_starts_where_it_was_told_to(channel: Channel, from_top: bool) -> None:
    seen: List[str] = []
    ended = threading.Event()

    def start(hop: Hop) -> None:
        if hop.method.endswith("Unary"):
            # Detached, because its own call may end before it.
            hop.unary(f"{ECHO}ClientStream", b"side", answered, from_top=from_top, detached=True)

    def answered(response: Any, outcome: Any) -> None:
        seen.append(f"answer {response!r}")
        ended.set()

    def named(name: str) -> Only:
        return Only(on_start=lambda hop: seen.append(name) if hop.method.endswith("ClientStream") else None)

    channel.add_interceptor(named("above"), 2)
    channel.add_interceptor(Only(on_start=start), 1)
    channel.add_interceptor(named("below"), 0)
    assert unary(channel) == b"x"
    assert ended.wait(60)
    assert seen == (["above"] if from_top else []) + ["below", "answer b'side'"]


def test_a_side_call_that_fails(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    outcomes: List[Any] = []

    def start(hop: Hop) -> None:
        def answered(response: Any, outcome: Any) -> None:
            outcomes.append((response, outcome.code()))
            raise LookupError("no")

        if hop.method.endswith("Unary"):
            hop.unary("/penstock.Probe/Refuse", b"", answered, detached=True)

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    eventually(lambda: bool(caplog.records))
    assert outcomes == [(None, StatusCode.UNAUTHENTICATED)]
    assert [record.getMessage() for record in caplog.records] == ["the on_reply of a side call raised"]


def test_reading_on_two_threads(channel: Channel) -> None:
    given = [bytes([number]) for number in range(100)]
    call = channel.stream_stream(f"{ECHO}Bidi")(given)
    found: List[bytes] = []
    threads = [on_thread(lambda: found.extend(call)) for _ in range(2)]
    for thread in threads:
        thread.join()
    assert sorted(found) == given
