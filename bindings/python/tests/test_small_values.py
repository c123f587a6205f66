"""Small functions by their tables: arguments, errors, the keywords of a call as options, metadata, and texts of
objects."""

from __future__ import annotations

import ctypes
import json
import math
import pickle
import threading
import time
import types
from typing import Any, List, Tuple

import grpc
import pytest

import penstock
from helpers import Only, eventually, unary
from penstock import Channel, Detail, Hop, Metadata, RpcError, Status, StatusCode, aio
from penstock._calls import keywords
from penstock._calls.keywords import CallKeywords
from penstock._channels import base, resolver
from penstock._handles import arguments, errors, reply, status
from penstock._handles.metadata import ReceivedMetadata, given_pairs
from penstock._raw import constants as c

# ---- Arguments ----


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [
        (0, 0),
        (-1, 0),
        (0.0001, 1),
        (0.001, 1),
        (0.0011, 2),
        (1, 1000),
        (1.5, 1500),
        (math.inf, 2**63 - 1024),
        (1e300, 2**63 - 1024),
        (-math.inf, 0),
    ],
)
def test_seconds_become_milliseconds(seconds: float, ms: int) -> None:
    assert arguments.milliseconds(seconds) == ms


def test_no_time_is_not_a_number() -> None:
    with pytest.raises(ValueError, match=r"^a time must not be NaN$"):
        arguments.milliseconds(math.nan)


@pytest.mark.parametrize(("number", "is_fine"), [(3, True), (7, True), (5, True), (2, False), (8, False)])
def test_the_bounds_of_a_number(number: int, is_fine: bool) -> None:
    if is_fine:
        assert arguments.whole_number(number, "it", 3, 7) == number
        return
    with pytest.raises(penstock.InvalidArgumentError) as caught:
        arguments.whole_number(number, "it", 3, 7)
    assert caught.value.message == f"it must be from 3 to 7, not {number}"
    assert caught.value.result == c.E_INVALID_ARGUMENT


@pytest.mark.parametrize(("wrong", "name"), [(True, "bool"), (1.0, "float"), ("1", "str"), (None, "NoneType")])
def test_what_is_no_whole_number(wrong: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"^it must be an int, not {name}$"):
        arguments.whole_number(wrong, "it", 0, 1)


def test_texts_and_messages_for_c() -> None:
    assert arguments.c_string("ü", "it") == b"\xc3\xbc"
    assert arguments.encoded_text("a\0b", "it") == b"a\0b"
    assert arguments.encoded_text("\udcff", "it") == b"\xed\xb3\xbf"
    for wrong in (b"a", 1, None):
        for make in (arguments.c_string, arguments.encoded_text):
            with pytest.raises(TypeError, match=f"^it must be a str, not {type(wrong).__name__}$"):
                make(wrong, "it")  # type: ignore[arg-type]
    with pytest.raises(penstock.InvalidArgumentError) as caught:
        arguments.c_string("a\0", "it")
    assert (caught.value.message, caught.value.result) == ("it contains a NUL character", c.E_INVALID_ARGUMENT)
    data = b"abc"
    assert arguments.payload(data) is data
    for other in (bytearray(data), memoryview(data)):
        assert arguments.payload(other) == data
        assert type(arguments.payload(other)) is bytes
    assert arguments.sized(bytearray(data)) == (data, 3)
    with pytest.raises(TypeError, match=r"^a message must be bytes, not str$"):
        arguments.payload("abc")  # type: ignore[arg-type]


# ---- Errors ----

CLASSES: List[Tuple[int, Any]] = [
    (c.E_INVALID_ARGUMENT, penstock.InvalidArgumentError),
    (c.E_INVALID_JSON, penstock.InvalidArgumentError),
    (c.E_ALREADY, penstock.AlreadyError),
    (c.E_GONE, penstock.GoneError),
    (c.E_WOULD_BLOCK, penstock.WouldBlockError),
    (c.E_WOULD_DEADLOCK, penstock.WouldDeadlockError),
    (c.E_BUSY, penstock.BusyError),
    (c.E_TIMEOUT, penstock.TimedOutError),
    (c.E_FORKED, penstock.ForkedError),
    (c.E_CLOSED, penstock.ClosedError),
    (c.E_NOT_FOUND, penstock.NotFoundError),
    (c.E_STATE, penstock.StateError),
    (c.E_SYSTEM, penstock.LibraryError),
]


@pytest.mark.parametrize(("result", "kind"), CLASSES)
def test_each_result_has_its_exception(result: int, kind: Any) -> None:
    error = errors.library_error(result, "words", "$.path")
    assert type(error) is kind
    assert (error.result, error.message, error.path) == (result, "words", "$.path")
    assert error.name == errors.result_name(result) != ""
    assert str(error) == f"words ({error.name})"
    assert str(errors.library_error(result)) == error.name
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is kind
    assert (copied.result, copied.name, copied.message, copied.path) == (result, error.name, "words", "$.path")
    for check in (lambda: errors.check(result, "words"), lambda: errors.check_hop(0, result, "words")):
        if result != c.E_STATE:
            with pytest.raises(kind, match=r"^words \("):
                check()
    with pytest.raises(kind) as caught:
        errors.check_with(result, ctypes.c_void_p())
    assert str(caught.value) == error.name


def test_what_is_fine_raises_nothing() -> None:
    errors.check(c.OK, "words")
    errors.check_hop(0, c.OK, "words")
    errors.check_with(c.OK, ctypes.c_void_p())


# ---- The keywords of a call ----

OPTIONS: List[Tuple[Any, str]] = [
    ({}, ""),
    ({"timeout": 1.5}, ', "deadline_ms": 1500'),
    ({"timeout": 0}, ', "deadline_ms": 0'),
    ({"timeout": -1}, ', "deadline_ms": 0'),
    ({"timeout": 1e9}, ', "deadline_ms": 1000000000000'),
    ({"timeout": 1.1e9}, ""),
    ({"metadata": {"a": "b"}}, ', "metadata": {"a": ["b"]}'),
    ({"metadata": {"A": ["b", "c"]}}, ', "metadata": {"a": ["b", "c"]}'),
    ({"metadata": {"a-bin": b"\x00"}}, ', "metadata": {"a-bin": ["AA=="]}'),
    ({"metadata": {"a": b"b"}}, ', "metadata": {"a": ["b"]}'),
    ({"metadata": {"a": b"\xff"}}, ', "metadata": {"a": [{"base64": "/w=="}]}'),
    ({"metadata": '{"a": ["b"]}'}, ', "metadata": {"a":["b"]}'),
    ({"metadata": Metadata({"a": "b"})}, ', "metadata": {"a":["b"]}'),
    ({"metadata": [("a", "b")]}, ""),
    ({"metadata": ()}, ""),
    ({"metadata": {}}, ""),
    ({"credentials": "Bearer x"}, ', "credentials": {"authorization": ["Bearer x"]}'),
    ({"credentials": {"a": "b"}}, ', "credentials": {"a": ["b"]}'),
    ({"credentials": [("a", "b")]}, ', "credentials": {"a": ["b"]}'),
    ({"credentials": ()}, ', "credentials": {}'),
    ({"wait_for_ready": True}, ', "wait_for_ready": true'),
    ({"wait_for_ready": False}, ', "wait_for_ready": false'),
    ({"compression": "x-own"}, ', "compression": "x-own"'),
    ({"compression": grpc.Compression.NoCompression}, ', "compression": "identity"'),
    ({"compression": grpc.Compression.Gzip}, ', "compression": "gzip"'),
    ({"compression": grpc.Compression.Deflate}, ', "compression": "deflate"'),
    ({"compression_min_bytes": 0}, ', "compression_min_bytes": 0'),
    ({"max_receive_message_bytes": 2**31 - 1}, ', "max_receive_message_bytes": 2147483647'),
    ({"max_send_message_bytes": 7}, ', "max_send_message_bytes": 7'),
    ({"send_buffer_bytes": 7}, ', "send_buffer_bytes": 7'),
    ({"interceptors": [object()]}, ""),
    ({"trace": True}, ', "trace": true'),
    ({"trace": False}, ', "trace": false'),
    ({"trace": 0}, ', "trace": false'),
    ({"trace": 1}, ', "trace": {"events": 1}'),
    ({"idempotency": penstock.Idempotency.NO_SIDE_EFFECTS}, ', "idempotency": "no_side_effects"'),
    ({"idempotency": 1}, ', "idempotency": "idempotent"'),
    ({"content_subtype": "json"}, ', "content_subtype": "json"'),
    ({"authority": "a"}, ', "authority": "a"'),
    ({"timeout": 1, "trace": 2, "authority": "a"}, ', "deadline_ms": 1000, "trace": {"events": 2}, "authority": "a"'),
]


@pytest.mark.parametrize(("given", "options"), OPTIONS)
def test_the_options_of_keywords(given: Any, options: str) -> None:
    text = CallKeywords(**given).options()
    assert text == f'{{"interruptible": true{options}}}'
    json.loads(text)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"credentials": 5}, ValueError, "credentials must be the value of authorization, or header fields, not int"),
        (
            {"compression": 5},
            ValueError,
            'compression must be "identity", "gzip", "deflate", "zstd" or the name of a compressor, not 5',
        ),
        ({"trace": "all"}, TypeError, "trace must be a number of events, not str"),
        ({"cancel_scope": 5}, TypeError, "cancel_scope must be a CancelScope, not int"),
        ({"compression_min_bytes": -1}, ValueError, "a number of bytes must be from 0 to 2147483647, not -1"),
        ({"send_buffer_bytes": 2**31}, ValueError, "a number of bytes must be from 0 to 2147483647, not 2147483648"),
        ({"timeout": math.nan}, ValueError, "a time must not be NaN"),
        ({"idempotency": "no"}, ValueError, "'no' is not a valid Idempotency"),
    ],
)
def test_keywords_that_are_wrong(given: Any, error: Any, words: str) -> None:
    with pytest.raises(error) as caught:
        CallKeywords(**given).options()
    assert str(caught.value).startswith(words)


def test_metadata_in_order_is_left_to_be_added() -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "3")]
    assert list(CallKeywords(metadata=pairs).pairs) == pairs
    for other in ({"a": "b"}, '{"a": ["b"]}', Metadata({"a": "b"}), None):
        assert list(CallKeywords(metadata=other).pairs) == []


def test_whether_an_interceptor_of_the_call_sees_objects() -> None:
    class At:
        def __init__(self, level: penstock.Level) -> None:
            self.level = level

    levels = penstock.Level
    for given, sees in (
        ([], False),
        ([object()], False),
        ([At(levels.BYTES)], False),
        ([At(levels.OBJECT)], True),
        ([At(levels.BOTH)], True),
        ([(At(levels.OBJECT), 3)], True),
        ([(At(levels.BYTES), 3)], False),
        ([At(levels.BYTES), At(levels.OBJECT)], True),
    ):
        assert CallKeywords(interceptors=given).sees_objects is sees
    assert CallKeywords(interceptors=iter([1, 2])).interceptors == (1, 2)


def test_the_end_of_a_time() -> None:
    assert keywords.end_of(None) is None
    assert keywords.end_of(1.1e9) is None
    before = time.monotonic()
    for seconds in (1e9, 1000.0, 0.0):
        end = keywords.end_of(seconds)
        assert end is not None
        assert before + seconds <= end <= time.monotonic() + seconds
    for seconds in (-5, -1e300):
        end = keywords.end_of(seconds)
        assert end is not None
        assert before <= end <= time.monotonic()


# ---- Options of a channel ----


def test_values_of_options() -> None:
    for default in (base._json_default, resolver._json_default):
        assert default(types.MappingProxyType({"a": 1})) == {"a": 1}
    assert base._json_default(b"pem") == "pem"
    assert base._json_default(bytearray(b"pem")) == "pem"
    for wrong in (1j, object, {1}):
        with pytest.raises(TypeError, match=f"^options can't hold a {type(wrong).__name__}$"):
            base._json_default(wrong)
        with pytest.raises(TypeError, match=r"^a snapshot can't have "):
            resolver._json_default(wrong)
    assert base._pem(None) == (None, 0)
    assert base._pem("ü") == (b"\xc3\xbc", 2)
    assert base._pem(b"abc") == (b"abc", 3)


def test_options_of_a_channel(server: str) -> None:
    options = types.MappingProxyType({"service_config": types.MappingProxyType({}), "user_agent": b"me"})
    with Channel(server, tls=False, options=options) as channel:
        assert unary(channel) == b"x"
    with pytest.raises(ValueError, match=r'^TLS is given twice: by tls= and by options\["tls"\]$'):
        Channel(server, tls=False, options={"tls": False})
    with Channel(server, options={"tls": False}) as channel:
        assert unary(channel) == b"x"
    with pytest.raises(TypeError, match=r"^options can't hold a set$"):
        Channel(server, options={"retries": {1}})


# ---- What objects say of themselves ----


def test_texts_of_objects(server: str) -> None:
    said: List[str] = []
    with Channel(server, tls=False) as channel:
        assert repr(channel) == f"<penstock.Channel {server!r}>"
        channel.add_interceptor(Only(on_headers=lambda hop: said.append(repr(hop.ticket()))))
        call = channel.unary_unary("/penstock.Echo/Unary").future(b"x")
        assert call.result() == b"x"
        assert repr(call).startswith("<penstock.Call ")
        assert repr(call).endswith(", OK>")
    eventually(lambda: bool(said))
    assert said[0].startswith("<Ticket 0x")
    assert repr(aio.EOF) == "penstock.aio.EOF"
    assert repr(Metadata([("a", "1"), ("b-bin", b"2")])) == "Metadata([('a', '1'), ('b-bin', b'2')])"
    assert repr(Status(5, "no")) == "<Status NOT_FOUND 'no'>"
    error = RpcError(StatusCode.ABORTED, "no")
    assert (str(error), repr(error)) == ("ABORTED: no", "<penstock.RpcError ABORTED 'no'>")
    assert str(RpcError(StatusCode.ABORTED, "")) == "ABORTED"


# ---- Calls that have failed without a reply, and copies ----


def test_an_error_without_a_reply() -> None:
    cause = ValueError("x")
    error = reply.local_error(StatusCode.INTERNAL, "no", cause)
    assert error.__cause__ is cause
    assert (error.code(), error.details()) == (StatusCode.INTERNAL, "no")
    assert (error.initial_metadata(), error.trailing_metadata()) == ((), ())
    assert (error.status_details, error.find_detail("a.B"), error.stats, error.trace) == ([], None, {}, {})
    assert error.peer_certificates is None
    view = {"code": 13, "name": "INTERNAL", "message": "no", "metadata": {}, "details": []}
    assert json.loads(error.status_json) == view
    assert json.loads(error.debug_error_string()) == {"status": view, "stats": {}}
    assert (error.is_active(), error.cancel(), error.cancelled(), error.running()) == (False, False, False, False)
    assert (error.done(), error.time_remaining(), error.add_callback(print)) == (True, None, False)
    assert (error.exception(), error.traceback()) == (error, error.__traceback__)
    assert (error.values.get("a"), error.values.get("a", 5), "a" in error.values) == (None, 5, False)
    with pytest.raises(KeyError, match="'a'"):
        error.values["a"]
    with pytest.raises(RpcError) as caught:
        error.result()
    assert caught.value is error
    told: List[Any] = []
    error.add_done_callback(told.append)
    assert told == [error]


def test_values_of_a_call(channel: Channel) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: hop.set_value("a", 7)))
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")
    assert (outcome.values["a"], "a" in outcome.values, "b" in outcome.values, 5 in outcome.values) == (
        *(7, True, False),
        False,
    )
    assert outcome.values.get("b", 7) == 7
    copied = pickle.loads(pickle.dumps(RpcError(StatusCode.ABORTED, "no", outcome._reply)))
    assert "a" not in copied.values
    assert copied.stats == outcome.stats
    assert copied.initial_metadata() == outcome.initial_metadata()
    assert copied.trailing_metadata().json == outcome.trailing_metadata().json


def test_a_running_call_shares_values(channel: Channel) -> None:
    gate = Gate()
    seen: List[Any] = []

    def look(hop: Hop) -> None:
        seen.append((hop.get_value("a"), hop.get_value("b", 5)))

    channel.add_interceptor(Only(on_half_close=look))
    call = channel.stream_stream("/penstock.Echo/Bidi")(iter(lambda: gate() or None, None))
    values = call.values
    values["a"] = 1
    assert (values["a"], "a" in values, "b" in values) == (1, True, False)
    values["b"] = 2
    del values["b"]
    with pytest.raises(KeyError, match="'b'"):
        del values["b"]
    with pytest.raises(KeyError, match="'b'"):
        values["b"]
    gate.open()
    assert list(call) == []
    assert seen == [(1, 5)]


class Gate:
    """A function that waits until it is opened, and returns None."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.open = self._event.set

    def __call__(self) -> None:
        assert self._event.wait(60)


# ---- Metadata and details ----


def test_metadata_that_was_received() -> None:
    received = ReceivedMetadata((("a", "1"), ("b-bin", b"2"), ("a", "3")))
    assert (received.get("A"), received.get("a"), received.get("c"), received.get("c", "d")) == ("1", "1", None, "d")
    assert (received.get_all("A"), received.get_all("b-bin"), received.get_all("c")) == (["1", "3"], [b"2"], [])
    assert received.json == "{}"


@pytest.mark.parametrize(
    ("given", "pairs"),
    [
        (None, []),
        ('{"a": ["b"]}', []),
        ({"a": "1", "b": ["2", b"3"]}, [("a", "1"), ("b", "2"), ("b", b"3")]),
        ({"c-bin": bytearray(b"4")}, [("c-bin", b"4")]),
        ([("a", "1"), ("a", memoryview(b"2"))], [("a", "1"), ("a", b"2")]),
    ],
)
def test_pairs_of_metadata(given: Any, pairs: Any) -> None:
    assert list(given_pairs(given)) == pairs


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([(1, "a")], "a metadata name must be a str, not int"),
        ([("a-bin", "x")], "metadata 'a-bin' takes bytes, not str"),
        ([("A-Bin", "x")], "metadata 'A-Bin' takes bytes, not str"),
        ([("a", 1)], "a value of metadata 'a' must be str or bytes, not int"),
        ({"a": [None]}, "a value of metadata 'a' must be str or bytes, not NoneType"),
    ],
)
def test_pairs_that_are_wrong(given: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        list(given_pairs(given))
    assert str(caught.value) == words


def test_arguments_of_an_end() -> None:
    own = Status(5, "no")
    assert status.as_status(own, "", (), None) is own
    for given in (("x", (), None), ("", [("a/b", b"")], None), ("", (), {}), ("", (), {"a": "b"})):
        with pytest.raises(TypeError, match=r"^a Status has its message, details and trailers already$"):
            status.as_status(own, *given)
    made = status.as_status(grpc.StatusCode.ABORTED, "x", [("a/b", b"c")], {"d": "e"})
    assert (made.code, made.message, made.details) == (StatusCode.ABORTED, "x", [Detail("a/b", b"c")])
    assert made.trailers["d"] == "e"
    assert status.find_detail(made.details, "a/b") == status.find_detail(made.details, "b") == Detail("a/b", b"c")
    assert status.find_detail(made.details, "a") is None
    for wrong in ("x/y", "z"):
        with pytest.raises(penstock.NotFoundError, match=f"^detail '{wrong}'"):
            made.remove_detail(wrong)
    made.set_detail(("a/b", b"d"))
    made.set_detail(("e/f", b"g"))
    made.add_detail(("a/b", b"h"))
    assert [(one.type_url, one.value) for one in made.details] == [("a/b", b"d"), ("e/f", b"g"), ("a/b", b"h")]
    made.remove_detail("b")
    assert [one.type_url for one in made.details] == ["e/f"]
