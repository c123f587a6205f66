"""Changes that interceptors make to events, and calls that they end or answer."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, List, Optional

import pytest

import penstock
from conftest import json_bytes
from helpers import EVENTS, Only, bidi, on_thread, recorder, unary
from penstock import Channel, Hop, Interceptor, RpcError, StatusCode, Verdict

# ---- Changing events ----


def test_messages_are_read_and_replaced(channel: Channel) -> None:
    def send(hop: Hop) -> None:
        hop.message = hop.message + b"!"

    def receive(hop: Hop) -> None:
        assert hop.message.endswith(b"!")
        hop.message = bytearray(hop.message.upper())

    channel.add_interceptor(Only(on_send=send, on_receive=receive))
    assert unary(channel, b"abc") == b"ABC!"
    assert bidi(channel, [b"a", b"", b"c"]) == [b"A!", b"!", b"C!"]


def test_the_start_is_changed(channel: Channel) -> None:
    def start(hop: Hop) -> None:
        hop.method = "/penstock.Probe/Unary"
        hop.authority = "other.example:1"
        hop.deadline = 7.0
        hop.metadata["x-token"] = "s3cret"
        assert (hop.method, hop.authority) == ("/penstock.Probe/Unary", "other.example:1")
        with pytest.raises(penstock.InvalidArgumentError):
            hop.method = "not a method"

    channel.add_interceptor(Only(on_start=start))
    view = json.loads(unary(channel, b"{}"))
    assert view["metadata"] == [["x-token", "s3cret"]]
    assert 3 < view["time_remaining"] <= 7


def test_a_deadline_is_taken_away(channel: Channel) -> None:
    def start(hop: Hop) -> None:
        hop.deadline = None
        assert hop.deadline is None

    channel.add_interceptor(Only(on_start=start))
    view = json.loads(channel.unary_unary("/penstock.Probe/Unary")(b"{}", timeout=5))
    assert view["time_remaining"] is None or view["time_remaining"] > 1e6


def test_the_status_is_changed(channel: Channel) -> None:
    def status(hop: Hop) -> None:
        assert hop.status.code is StatusCode.NOT_FOUND
        hop.status.code = StatusCode.UNAVAILABLE
        hop.status.message += " (twice)"
        hop.status.trailers["x-by"] = "hop"
        hop.status.add_detail(("example.com/a.Detail", b"\x07"))

    channel.add_interceptor(Only(on_status=status))
    with pytest.raises(RpcError, match=r"UNAVAILABLE: gone \(twice\)") as caught:
        channel.unary_unary("/penstock.Probe/Unary", json_bytes)({"code": 5, "message": "gone"})
    assert caught.value.trailing_metadata().get("x-by") == "hop"
    detail = caught.value.find_detail("a.Detail")
    assert detail is not None
    assert detail.value == b"\x07"


def test_messages_are_dropped_and_injected(channel: Channel) -> None:
    def send(hop: Hop) -> Optional[Verdict]:
        if hop.message == b"drop me":
            return Verdict.DROP
        if hop.message == b"twice":
            hop.send_message(b"injected")
        return None

    def receive(hop: Hop) -> Optional[Verdict]:
        return Verdict.DROP if hop.message == b"not you" else None

    channel.add_interceptor(Only(on_send=send, on_receive=receive))
    assert bidi(channel, [b"1", b"drop me", b"twice", b"not you", b"2"]) == [b"1", b"injected", b"twice", b"2"]


def test_wrong_use_is_a_state_error(channel: Channel) -> None:
    caught: List[Exception] = []

    def attempts(hop: Hop, *actions: Callable[[], Any]) -> None:
        for action in actions:
            try:
                action()
            except penstock.LibraryError as error:
                caught.append(error)

    def start(hop: Hop) -> None:
        attempts(
            hop,
            lambda: hop.message,
            lambda: setattr(hop, "message", b""),
            lambda: hop.status,
        )
        attempts(hop, lambda: setattr(hop, "count", -1))

    def send(hop: Hop) -> None:
        attempts(
            hop,
            lambda: hop.metadata,
            lambda: setattr(hop, "deadline", 5.0),
            lambda: hop.deliver_headers(),
            lambda: hop.deliver_status(0),
        )

    channel.add_interceptor(Only(on_start=start, on_send=send))
    unary(channel)
    assert [type(error) for error in caught] == [
        *[penstock.StateError] * 3,
        penstock.InvalidArgumentError,
        *[penstock.StateError] * 4,
    ]


# ---- Ending and answering ----


@pytest.mark.parametrize("event", EVENTS[:6])
def test_finish_from_each_event(channel: Channel, event: str) -> None:
    log: List[str] = []

    def finish(hop: Hop) -> None:
        hop.end(StatusCode.ABORTED, f"in {event}", trailers={"x-by": "hop"})

    channel.add_interceptor(recorder(log, events=("on_status", "on_cancel")), priority=1)
    channel.add_interceptor(Only(**{event: finish}))
    with pytest.raises(RpcError, match=f"ABORTED: in {event}") as caught:
        unary(channel)
    assert caught.value.trailing_metadata().get("x-by") == "hop"
    assert log == ["on_status"]


def test_finish_with_ok_and_no_message_is_a_cardinality_violation(channel: Channel) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: hop.end(0)))
    with pytest.raises(RpcError):
        unary(channel)


def test_an_interceptor_answers_by_itself(channel: Channel) -> None:
    class Cache(Interceptor):
        def on_start(self, hop: Hop) -> Verdict:
            if hop.method == "/no.such/HeadersAtOnce":
                hop.deliver_headers({"x-from": "cache"})
            return Verdict.TAKE

        def on_half_close(self, hop: Hop) -> None:
            if hop.method == "/no.such/HeadersLater":
                hop.deliver_headers({"x-from": "cache"})
            hop.deliver_message(b"cached")
            hop.deliver_status(StatusCode.OK, trailers=[("x-age", "7")])

    channel.add_interceptor(Cache())
    for method in ("/no.such/HeadersAtOnce", "/no.such/HeadersLater"):
        response, outcome = channel.unary_unary(method).with_call(b"x")
        assert response == b"cached"
        assert outcome.initial_metadata().get("x-from") == "cache"
        assert outcome.trailing_metadata().get("x-age") == "7"


def test_an_interceptor_answers_a_stream_from_another_thread(channel: Channel) -> None:
    """Another thread delivers a message each time that `on_demand` reports demand for one."""

    class Numbers(Interceptor):
        def create(self, hop: Hop) -> Any:
            return threading.Semaphore(0)

        def on_start(self, hop: Hop) -> Verdict:
            asked = hop.state
            ticket = hop.ticket()

            def answer() -> None:
                ticket.resolve(Verdict.TAKE)
                hop.deliver_headers()
                for number in range(5):
                    while True:
                        asked.acquire()
                        try:
                            hop.deliver_message(str(number).encode())
                            break
                        except penstock.WouldBlockError:
                            continue
                hop.deliver_status(StatusCode.OUT_OF_RANGE, "that was all")

            on_thread(answer)
            return Verdict.PAUSE

        def on_demand(self, hop: Hop) -> None:
            for _ in range(hop.count):
                hop.state.release()

    channel.add_interceptor(Numbers())
    received: List[bytes] = []
    with pytest.raises(RpcError, match="OUT_OF_RANGE: that was all"):
        received.extend(channel.unary_stream("/no.such/Method")(b"x", timeout=30))
    assert received == [b"0", b"1", b"2", b"3", b"4"]


def test_a_kept_hop_is_gone_after_its_call(channel: Channel) -> None:
    hops: List[Hop] = []
    channel.add_interceptor(Only(on_start=lambda hop: hops.append(hop.retain())))
    unary(channel)
    hop = hops.pop()
    assert hop.call_id > 0
    assert hop.target == channel.target
    uses: List[Callable[[], object]] = [
        lambda: hop.demand(1),
        lambda: hop.deliver_message(b""),
        lambda: hop.deliver_status(0),
    ]
    for use in uses:
        with pytest.raises((penstock.GoneError, penstock.StateError)):
            use()
    with pytest.raises(penstock.StateError):
        print(hop.metadata)


def test_a_hop_that_is_not_kept_is_not_used_later(channel: Channel) -> None:
    hops: List[Hop] = []
    on_other_thread: List[Exception] = []

    def start(hop: Hop) -> None:
        hops.append(hop)

        def use() -> None:
            try:
                print(hop.metadata)
            except penstock.StateError as error:
                on_other_thread.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()

    channel.add_interceptor(Only(on_start=start))
    unary(channel)
    assert len(on_other_thread) == 1
    for later in (lambda: hops[0].call_id, lambda: hops[0].metadata, lambda: hops[0].retain()):
        with pytest.raises(penstock.StateError, match="callback"):
            later()
