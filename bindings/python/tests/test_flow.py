"""Flow control through a chain: a slow reader stops the server, and demand and sent messages are counted exactly.

Tests/c/test_flow.c and Tests/c/test_demand.c measure this more closely.
"""

from __future__ import annotations

import random
import threading
from typing import Any, List, Optional, Tuple

import pytest

from helpers import Only, Peer, on_thread
from penstock import Channel, GoneError, Hop, Interceptor, StatusCode, Verdict, WouldBlockError

SIZE = 10_000
WINDOW = 1 << 20


def eight() -> List[Interceptor]:
    """Interceptors for each way to change messages or demand: pausing, holding, dropping, injecting and so on."""
    counts = {"hold": 0, "drop": 0, "inject": 0, "ahead": 0}

    def each(name: str) -> int:
        counts[name] += 1
        return counts[name]

    def pause(hop: Hop) -> Verdict:
        hop.ticket().resume_after(0)
        return Verdict.PAUSE

    def hold(hop: Hop) -> Optional[Verdict]:
        return Verdict.HOLD if each("hold") % 4 else None

    def late(hop: Hop) -> None:
        count = hop.count
        hop.count = 0
        hop.demand(count)

    def ahead(hop: Hop) -> None:
        if each("ahead") == 1:
            hop.count += 4

    def drop(hop: Hop) -> Optional[Verdict]:
        return Verdict.DROP if each("drop") % 10 == 5 else None

    def inject(hop: Hop) -> None:
        if each("inject") % 10 == 7:
            try:
                hop.deliver_message(b"injected")
            except WouldBlockError:
                counts["inject"] -= 1

    def nothing(hop: Hop) -> None: ...

    return [
        Only(on_receive=nothing, on_demand=nothing),
        Only(on_receive=pause),
        Only(on_receive=hold),
        Only(on_demand=late),
        Only(on_demand=ahead),
        Only(on_receive=drop),
        Only(on_receive=inject),
        Only(on_receive=nothing, on_sent=nothing),
    ]


def test_a_slow_reader_stops_the_server(peer: Peer) -> None:
    with Channel(peer.target, tls=False) as channel:
        for place, interceptor in enumerate(eight()):
            channel.add_interceptor(interceptor, priority=-place, methods="/penstock.Echo/ServerStream")
        echo = channel.unary_unary("/penstock.Echo/Unary")
        stream = channel.unary_stream("/penstock.Echo/ServerStream")
        call = stream(bytes(SIZE), metadata={"x-count": "2000000000"})
        for _ in range(100):
            assert next(call) is not None
            # Another call: while it runs, the server could send more of the stream.
            echo(b"")
        call.cancel()
        seen = peer.saw()
    # The server would send 2,000,000,000 messages. It has sent only the 100 that were read, those that fit into the
    # flow-control window, and a few that are in hops or in the peer's buffers.
    assert 100 <= seen["messages_out"] <= 100 + (WINDOW + 2 * 65536) // SIZE + 40


class FarEnd(Interceptor):
    """Takes each call, counts the messages that the caller asks for, and delivers messages when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.hop: Optional[Hop] = None
        self.taken = threading.Event()

    def on_start(self, hop: Hop) -> Verdict:
        self.hop = hop.retain()
        self.taken.set()
        return Verdict.TAKE

    def on_demand(self, hop: Hop) -> None:
        self.asked += hop.count

    def deliver(self, message: bytes) -> None:
        assert self.hop is not None
        self.hop.deliver_message(message)

    def end(self) -> None:
        assert self.hop is not None
        self.hop.deliver_status(StatusCode.OK)


def line(channel: Channel, middle: Interceptor) -> Tuple[FarEnd, Any]:
    end = FarEnd()
    channel.add_interceptor(middle, priority=2, methods="/penstock.Echo/Bidi")
    channel.add_interceptor(end, priority=1, methods="/penstock.Echo/Bidi")
    call = channel.unary_stream("/penstock.Echo/Bidi")(b"")
    assert end.taken.wait(30)
    return end, call


def settle(channel: Channel) -> None:
    """Makes another call. When it has ended, the driving thread has done everything that was asked of it before."""
    assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"


def take(call: Any, end: FarEnd, *messages: bytes) -> bytes:
    """Reads one message of ``call``. Meanwhile another thread delivers ``messages``, each as soon as there is demand
    for it."""

    def answer() -> None:
        for message in messages:
            while True:
                try:
                    end.deliver(message)
                    break
                except WouldBlockError:
                    threading.Event().wait(0.001)

    answering = on_thread(answer)
    message = next(call)
    answering.join()
    assert isinstance(message, bytes)
    return message


def test_demand_that_is_lowered_is_asked_for_later(channel: Channel) -> None:
    kept: List[Hop] = []

    def lower(hop: Hop) -> None:
        if not kept:
            kept.append(hop.retain())
            hop.count = 0

    end, call = line(channel, Only(on_demand=lower))
    got: List[bytes] = []
    reading = on_thread(lambda: got.append(next(call)))
    while not kept:
        threading.Event().wait(0.001)
    settle(channel)
    assert end.asked == 0
    kept[0].demand(1)
    settle(channel)
    assert end.asked == 1
    end.deliver(b"a")
    reading.join()
    assert got == [b"a"]
    end.end()
    assert list(call) == []


def test_an_injected_message_is_one_less_to_ask_for(channel: Channel) -> None:
    def inject(hop: Hop) -> None:
        hop.deliver_message(b"own")

    end, call = line(channel, Only(on_demand=inject))
    assert [next(call) for _ in range(20)] == [b"own"] * 20
    settle(channel)
    # The hop answers each demand with a message of its own, so only one message has been asked for below it.
    assert end.asked == 1
    end.end()
    with pytest.raises((GoneError, StopIteration)):
        next(call)


def test_a_dropped_message_is_asked_for_again(channel: Channel) -> None:
    end, call = line(channel, Only(on_receive=lambda hop: Verdict.DROP if hop.message == b"x" else None))
    assert take(call, end, b"x", b"x", b"a") == b"a"
    settle(channel)
    assert end.asked == 3
    end.end()
    assert list(call) == []


def test_each_message_is_told_as_sent_once(channel: Channel) -> None:
    told: List[int] = []

    def send(hop: Hop) -> Optional[Verdict]:
        if hop.message == b"1":
            return Verdict.DROP
        if hop.message == b"2":
            return Verdict.HOLD
        hop.send_message(b"own")
        return None

    channel.add_interceptor(Only(on_sent=lambda hop: told.append(hop.count)), priority=1)
    channel.add_interceptor(Only(on_send=send))
    messages = [b"1", b"2", b"3", b"4"]
    assert list(channel.stream_stream("/penstock.Echo/Bidi")(messages)) == [b"2", b"own", b"3", b"own", b"4"]
    assert sum(told) == 4


def test_messages_stay_in_order_behind_one_that_is_compressed_in_slices(channel: Channel) -> None:
    """Large messages are compressed in slices. The messages here are larger than a slice, exactly one slice, and one
    byte more; compressible or not; with small messages between them. They arrive in order."""
    noise = random.Random(1).randbytes
    slice_size = 128 << 10
    messages = [
        noise(900_000),
        b"small",
        b"a" * slice_size,
        b"",
        b"b" * (slice_size + 1),
        noise(20),
        b"c" * 3_000_000,
        b"end",
    ]
    bidi = channel.stream_stream("/penstock.Echo/Bidi")
    assert list(bidi(iter(messages), compression="gzip")) == messages
    for message in messages:
        assert channel.unary_unary("/penstock.Echo/Unary")(message, compression="gzip") == message
