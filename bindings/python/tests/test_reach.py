"""A retained hop ends its call, half-closes it and sends messages, on any thread, while no event waits. A hop
delivers an answer before there is demand, sees a call whose deadline passes before the call begins, and knows whether
the channel is secure."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

import penstock
from helpers import Only, Peer, bidi, on_thread, recorder, unary
from penstock import Channel, Hop, Kind, RpcError, StatusCode, Verdict

BIDI = "/penstock.Echo/Bidi"


class Bench:
    """A bidi call whose hop "keep" is retained, with a hop above and one below that record the events."""

    def __init__(self, channel: Channel, start: Optional[Callable[[Hop], Any]] = None) -> None:
        self.above: List[Any] = []
        self.below: List[Any] = []
        self.hops: queue.Queue[Hop] = queue.Queue()
        self.requests: queue.Queue[Optional[bytes]] = queue.Queue()

        def keep(hop: Hop) -> Any:
            self.hops.put(hop.retain())
            return start(hop) if start else None

        channel.add_interceptor(recorder(self.above), priority=3)
        channel.add_interceptor(Only(on_start=keep), priority=2)
        channel.add_interceptor(recorder(self.below), priority=1)
        self.call = channel.stream_stream(BIDI)(iter(self.requests.get, None), timeout=30)
        self.hop = self.hops.get(timeout=30)

    def begin(self) -> None:
        """Sends a message and reads its echo. Then start has left the hop."""
        self.requests.put(b"a")
        assert next(self.call) == b"a"

    def elsewhere(self, action: Callable[[], object]) -> None:
        """Runs ``action`` on a new thread, which is in no callback and waits for no call. Raises the exception of
        ``action``."""
        raised: List[BaseException] = []

        def guarded() -> None:
            try:
                action()
            except BaseException as error:
                raised.append(error)

        on_thread(guarded).join()
        if raised:
            raise raised[0]

    def check_over(self) -> None:
        """Asserts that the hop's part in its call has ended: its functions raise GoneError."""
        for act in (lambda: self.hop.end(1), self.hop.half_close, lambda: self.hop.send_message(b"x")):
            with pytest.raises(penstock.GoneError):
                act()


@pytest.fixture
def bench(channel: Channel) -> Iterator[Bench]:
    opened = Bench(channel)
    yield opened
    opened.requests.put(None)


# ---- A retained hop ----


def test_a_hop_ends_its_call_on_another_thread(bench: Bench) -> None:
    bench.begin()
    bench.elsewhere(
        lambda: bench.hop.end(StatusCode.UNAUTHENTICATED, "revoked", [("e.com/a.B", b"1")], {"x-by": "hop"})
    )
    with pytest.raises(RpcError, match="UNAUTHENTICATED: revoked") as caught:
        next(bench.call)
    assert caught.value.trailing_metadata().get("x-by") == "hop"
    assert caught.value.find_detail("a.B") is not None
    assert bench.above.count("on_status") == 1
    assert (bench.below.count("on_status"), bench.below.count("on_cancel")) == (0, 1)
    bench.check_over()


def test_a_hop_ends_its_call_while_start_waits(channel: Channel) -> None:
    def wait(hop: Hop) -> Verdict:
        hop.ticket()
        return Verdict.PAUSE

    bench = Bench(channel, wait)
    for act in (bench.hop.half_close, lambda: bench.hop.send_message(b"x")):
        with pytest.raises(penstock.StateError):
            bench.elsewhere(act)
    bench.elsewhere(lambda: bench.hop.end(StatusCode.ABORTED, "idle"))
    with pytest.raises(RpcError, match="ABORTED: idle"):
        next(bench.call)
    bench.requests.put(None)
    assert bench.below == []
    bench.check_over()


def test_a_hop_sends_heartbeats_on_another_thread(bench: Bench) -> None:
    bench.begin()
    for _ in range(3):
        bench.elsewhere(lambda: bench.hop.send_message(b"beat"))
        assert next(bench.call) == b"beat"
    assert (bench.above.count("on_send"), bench.below.count("on_send")) == (1, 4)
    bench.requests.put(None)
    assert list(bench.call) == []


def test_a_hop_half_closes_on_another_thread(bench: Bench) -> None:
    bench.begin()
    bench.elsewhere(bench.hop.half_close)
    assert list(bench.call) == []
    assert bench.call.code() is StatusCode.OK
    assert (bench.above.count("on_half_close"), bench.below.count("on_half_close")) == (0, 1)
    bench.check_over()


def test_a_hop_in_asynchronous_style_sends_and_half_closes_later(channel: Channel) -> None:
    hops: queue.Queue[Hop] = queue.Queue()

    class Keep(penstock.CompletionInterceptor):
        def on_start(self, metadata: penstock.Metadata, done: penstock.Completion) -> None:
            hops.put(done.hop)
            done.next()

    channel.add_interceptor(Keep())
    requests: queue.Queue[Optional[bytes]] = queue.Queue()
    call = channel.stream_stream(BIDI)(iter(requests.get, None), timeout=30)
    requests.put(b"a")
    assert next(call) == b"a"
    hop = hops.get(timeout=30)
    hop.send_message(b"beat")
    assert next(call) == b"beat"
    hop.half_close()
    assert list(call) == []
    requests.put(None)


# ---- In a callback ----


def test_a_hop_half_closes_behind_the_message_of_its_callback(channel: Channel) -> None:
    passed: List[bytes] = []

    def send(hop: Hop) -> None:
        passed.append(hop.message)
        if len(passed) == 2:
            hop.half_close()

    below: List[Any] = []
    channel.add_interceptor(Only(on_send=send), priority=2)
    channel.add_interceptor(recorder(below), priority=1)
    assert bidi(channel, [b"a", b"b", b"c", b"d"]) == [b"a", b"b"]
    assert passed == [b"a", b"b"]
    assert (below.count("on_send"), below.count("on_half_close")) == (2, 1)


# ---- Answers ----


class Cache(penstock.Interceptor):
    """A cache of unary responses by request message. It holds start until the message comes: then either start goes
    on, or, if the response is known, the hop answers the call with it."""

    def __init__(self) -> None:
        self.known: Dict[bytes, bytes] = {}
        self.hits = 0

    def create(self, hop: Hop) -> Any:
        return {} if hop.kind is Kind.UNARY else Verdict.SKIP

    def on_start(self, hop: Hop) -> Verdict:
        hop.state["start"] = hop.ticket()
        return Verdict.HOLD

    def on_send(self, hop: Hop) -> None:
        hop.state["key"] = hop.message
        answer = self.known.get(hop.message)
        if answer is None:
            hop.state["start"].resume()
            return
        self.hits += 1
        hop.state["start"].resolve(Verdict.TAKE)
        hop.deliver_message(answer)
        hop.deliver_status(StatusCode.OK)

    def on_receive(self, hop: Hop) -> None:
        self.known[hop.state["key"]] = hop.message


def test_a_cache_by_the_request(channel: Channel) -> None:
    cache = Cache()
    below: List[Any] = []
    channel.add_interceptor(cache, priority=2)
    channel.add_interceptor(recorder(below), priority=1)
    for data in (b"a", b"b", b"a", b"a", b"b"):
        assert unary(channel, data) == data
    assert cache.hits == 3
    assert below.count("on_start") == 2
    assert bidi(channel, [b"a"]) == [b"a"]
    assert cache.hits == 3


def test_an_answer_that_nobody_has_asked_for_waits_within_a_bound(channel: Channel) -> None:
    refused: List[type] = []

    def answer(hop: Hop) -> Verdict:
        hop.deliver_headers({"x-by": "hop"})
        hop.deliver_message(bytes(600))
        hop.deliver_message(b"more")
        try:
            hop.deliver_message(bytes(600))
        except penstock.WouldBlockError as error:
            refused.append(type(error))
        return Verdict.TAKE

    def rest(hop: Hop) -> None:
        if hop.count and not finished.is_set():
            finished.set()
            hop.deliver_message(b"the rest")
            hop.deliver_status(StatusCode.OK)

    finished = threading.Event()
    channel.add_interceptor(Only(on_start=answer, on_demand=rest), hold_bytes=1000)
    call = channel.unary_stream("/penstock.Echo/ServerStream")(b"", timeout=30)
    assert list(call) == [bytes(600), b"more", b"the rest"]
    assert call.initial_metadata().get("x-by") == "hop"
    assert refused == [penstock.WouldBlockError]


# ---- The call and its channel ----


def test_a_call_whose_time_is_over_is_seen(channel: Channel) -> None:
    started: List[Any] = []
    told: queue.Queue[Any] = queue.Queue()
    channel.add_interceptor(
        Only(
            on_start=lambda hop: started.append(hop.deadline),
            on_status=lambda hop: told.put((hop.status.code, hop.stats)),
        )
    )
    with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
        unary(channel, timeout=0)
    code, stats = told.get(timeout=30)
    assert started == [0]
    assert code is StatusCode.DEADLINE_EXCEEDED
    assert stats["elapsed_us"] >= 0
    assert (stats["duration_us"], stats["attempts"]) == (None, 0)


def is_secure(target: str, tls: Any) -> bool:
    """Makes a call, in which a hop reads `is_secure` in five callbacks. Returns the value, which is the same in
    all."""
    told: List[bool] = []
    with Channel(target, tls=tls) as channel:
        callbacks = ("create", "on_start", "on_send", "on_headers", "on_status")
        channel.add_interceptor(Only(**{each: lambda hop: told.append(hop.is_secure) for each in callbacks}))
        assert unary(channel, timeout=20) == b"x"
    assert len(told) == len(callbacks)
    assert len(set(told)) == 1
    return told[0]


def test_a_hop_is_told_whether_the_channel_is_secure(
    servers: Dict[str, str], certificates: Path, tmp_path: Path
) -> None:
    assert not is_secure(servers["plain"], False)
    assert is_secure(servers["tls"], {"roots_file": str(certificates / "ca.pem")})
    peer = Peer(f"unix:{tmp_path}/peer.sock")
    try:
        assert is_secure(peer.target, False)
    finally:
        peer.close()
