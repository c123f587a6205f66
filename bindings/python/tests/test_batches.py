"""Many messages that cross into the library at once: nobody sees a difference but in time."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Iterator, List

import pytest

import penstock
from helpers import Only, Peer, eventually, on_thread
from penstock import Channel, Codec, Hop, Level, RpcError, StatusCode, Uncompressed, Verdict, _raw
from penstock._calls import batch

ECHO = "/penstock.Echo/"
WAYS = [
    ("grpc", "2"),
    ("grpc-web", "2"),
    ("grpc-web-text", "1.1"),
    ("connect", "2"),
    ("connect", "1.1"),
]
# Messages of many sizes; two are too large to cross with others.
SIZES = [*range(200), 0, 0, batch.SIZE, batch.SIZE + 1, 3, 0, batch.SIZE - 1, 1] * 2


def messages(sizes: List[int] = SIZES) -> List[bytes]:
    return [(number % 251).to_bytes(1, "big") * size for number, size in enumerate(sizes)]


@pytest.fixture(params=WAYS, ids="-".join)
def over(request: Any, peer: Peer) -> Iterator[Channel]:
    protocol, http = request.param
    options = {"protocol": protocol, "http": http, "compression": "gzip"}
    with Channel(peer.target, tls=False, options=options) as channel:
        yield channel


@pytest.mark.parametrize("form", [list, tuple, iter], ids=lambda form: form.__name__)
def test_each_message_comes_once_and_in_order(over: Channel, form: Any) -> None:
    call = over.stream_stream(f"{ECHO}Bidi")(form(messages()), metadata={"x-compress": "gzip"})
    assert list(call) == messages()
    assert call.code() is StatusCode.OK


def test_the_messages_before_an_error_come_first(over: Channel) -> None:
    metadata = {"x-count": "500", "x-after": "150", "x-status": "9"}
    call = over.unary_stream(f"{ECHO}ServerStream")(b"abc", metadata=metadata)
    came: List[bytes] = []
    with pytest.raises(RpcError) as raised:
        came.extend(call)
    assert came == [b"abc"] * 150
    assert raised.value.code() is StatusCode.FAILED_PRECONDITION


@pytest.fixture
def crossings(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """The names of the functions that carry messages, one for each time that it is called."""
    seen: List[str] = []

    def counted(name: str) -> None:
        function = getattr(_raw, name)

        def call(*arguments: Any) -> Any:
            seen.append(name)
            return function(*arguments)

        monkeypatch.setattr(_raw, name, call)

    for name in ("receive", "receive_many", "send", "send_message", "send_many", "try_send", "try_send_many"):
        counted(f"penstock_call_{name}")
    return seen


def test_small_messages_cross_together(peer: Peer, crossings: List[str]) -> None:
    with Channel(peer.target, tls=False) as channel:
        assert channel.stream_unary(f"{ECHO}ClientStream")([b"abc"] * 640, metadata={"x-mode": "count"}) == b"640"
        assert crossings == ["penstock_call_try_send_many"] * 10
        crossings.clear()
        call = channel.unary_stream(f"{ECHO}ServerStream")(b"abc", metadata={"x-count": "6400"})
        assert sum(1 for _ in call) == 6400
    # As many come at once as have arrived; the peer packs hundreds into one write.
    assert len(crossings) < 640, len(crossings)
    assert "penstock_call_receive" not in crossings


def test_a_message_of_an_iterator_or_of_write_waits_for_none(peer: Peer, crossings: List[str]) -> None:
    """The next one is made only when the answer to the one before has come."""
    answers: List[bytes] = []
    came = threading.Semaphore(0)

    def requests() -> Iterator[bytes]:
        for number in range(5):
            yield b"%d" % number
            assert came.acquire(timeout=60)

    with Channel(peer.target, tls=False) as channel:
        for answer in channel.stream_stream(f"{ECHO}Bidi")(requests()):
            answers.append(answer)
            came.release()
        assert answers == [b"0", b"1", b"2", b"3", b"4"]
        assert "penstock_call_send_many" not in crossings
        call = channel.stream_stream(f"{ECHO}Bidi")()
        for number in range(5):
            assert call.write(b"%d" % number)
            assert next(call) == b"%d" % number
        call.done_writing()
        assert list(call) == []


def test_a_list_that_has_no_room_at_once(peer: Peer) -> None:
    requests = [bytes(1000)] * 5000
    with Channel(peer.target, tls=False) as channel:
        assert list(channel.stream_stream(f"{ECHO}Bidi")(requests)) == requests


def test_a_request_that_fails_after_others(peer: Peer) -> None:
    def serializer(request: bytes) -> bytes:
        if request == b"wrong":
            raise ValueError(request)
        return request

    with Channel(peer.target, tls=False) as channel:
        for requests, code in (
            ([b"a"] * 70 + [b"wrong"] + [b"b"] * 70, StatusCode.INTERNAL),
            ([b"a"] * 70 + [bytes(2000)] + [b"b"] * 70, StatusCode.RESOURCE_EXHAUSTED),
        ):
            method = channel.stream_unary(f"{ECHO}ClientStream", serializer)
            with pytest.raises(RpcError) as raised:
                method(requests, max_send_message_bytes=1000)
            assert raised.value.code() is code


def test_marked_messages_and_objects_go_among_others(peer: Peer) -> None:
    class Text(Codec):
        name = "text"

        def encode(self, message: Any) -> bytes:
            return str(message).encode()

        def decode(self, data: bytes, deserializer: Any) -> Any:
            return int(data)

    with Channel(peer.target, tls=False) as channel:
        requests: List[Any] = [b"abc"] * 70
        requests[5] = requests[66] = Uncompressed(b"secret")
        expected = [each.message if isinstance(each, Uncompressed) else each for each in requests]
        assert list(channel.stream_stream(f"{ECHO}Bidi")(requests, compression="gzip")) == expected
    seen: List[Any] = []
    objects = Only(on_receive=lambda hop: seen.append(hop.message))
    objects.level = Level.OBJECT
    with Channel(peer.target, tls=False, codec=Text(), interceptors=[objects]) as channel:
        assert list(channel.stream_stream(f"{ECHO}Bidi")(list(range(200)))) == list(range(200))
        assert seen == list(range(200))


def test_each_message_passes_interceptors_by_itself(peer: Peer) -> None:
    sent: List[bytes] = []
    received: List[bytes] = []

    def on_receive(hop: Hop) -> Any:
        received.append(hop.message)
        return Verdict.DROP if len(received) % 10 == 0 else None

    with Channel(peer.target, tls=False) as channel:
        channel.add_interceptor(Only(on_send=lambda hop: sent.append(hop.message), on_receive=on_receive))
        requests = [b"%d" % number for number in range(300)]
        came = list(channel.stream_stream(f"{ECHO}Bidi")(requests))
    assert sent == received == requests
    assert came == [request for place, request in enumerate(requests, 1) if place % 10]


def test_a_cancel_discards_what_has_crossed(peer: Peer) -> None:
    with Channel(peer.target, tls=False) as channel:
        for _ in range(20):
            call = channel.unary_stream(f"{ECHO}ServerStream")(b"abc", metadata={"x-count": "1000000"})
            assert next(call) == b"abc"
            assert call.cancel()
            with pytest.raises(RpcError) as raised:
                next(call)
            assert raised.value.code() is StatusCode.CANCELLED


def test_several_readers_share_the_messages(peer: Peer) -> None:
    """Each message comes to one of them, and no reader sees a message before one that comes earlier in the stream."""
    requests = [b"%d" % number for number in range(20_000)]
    with Channel(peer.target, tls=False) as channel:
        call = channel.stream_stream(f"{ECHO}Bidi")(requests)
        read: List[List[int]] = [[], [], [], []]
        threads = [on_thread(lambda mine=mine: mine.extend(map(int, call))) for mine in read]  # type: ignore[misc]
        for thread in threads:
            thread.join()
    assert sorted(number for mine in read for number in mine) == list(range(20_000))
    assert all(mine == sorted(mine) for mine in read)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_does_not_wait_for_a_reader_of_its_parent(peer: Peer) -> None:
    with Channel(peer.target, tls=False) as channel:
        call = channel.stream_stream(f"{ECHO}Bidi")()
        reader = on_thread(lambda: list(call))
        eventually(lambda: bool(channel._waiters))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                next(call)
            except (penstock.LibraryError, RpcError):
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        call.done_writing()
        reader.join()


def test_an_exception_keeps_what_has_come(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Ctrl-C that comes when the library has just written messages."""
    with Channel(peer.target, tls=False) as channel:
        call = channel.stream_stream(f"{ECHO}Bidi")([b"%d" % number for number in range(100)])
        function = _raw.penstock_call_receive_many

        def interrupted(*arguments: Any) -> int:
            assert function(*arguments) == 0
            raise KeyboardInterrupt

        monkeypatch.setattr(_raw, "penstock_call_receive_many", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(call)
        monkeypatch.undo()
        assert list(call) == [b"%d" % number for number in range(100)]


def test_rooms_are_used_again(peer: Peer) -> None:
    with Channel(peer.target, tls=False) as channel:
        for _ in range(50):
            assert len(list(channel.unary_stream(f"{ECHO}ServerStream")(b"x", metadata={"x-count": "99"}))) == 99
    assert 1 <= len(batch._rooms) <= threading.active_count() + 8
    assert ctypes.sizeof(batch._rooms[0]._data) == batch.SIZE
