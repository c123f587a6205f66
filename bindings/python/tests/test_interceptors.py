"""Interceptors: what they see and change, where they stand, and what they may answer."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

import penstock
from conftest import await_hanging, json_bytes
from penstock import Channel, EventKind, Hop, Interceptor, Kind, Registration, RpcError, StatusCode, Ticket, Verdict

EVENTS = (
    "on_start",
    "on_send",
    "on_half_close",
    "on_headers",
    "on_receive",
    "on_status",
    "on_cancel",
    "on_demand",
    "on_sent",
)


class Only(Interceptor):
    """An interceptor with the callbacks it is given."""

    def __init__(self, **callbacks: Callable[[Hop], Any]) -> None:
        for callback, function in callbacks.items():
            setattr(self, callback, function)


def unary(channel: Channel, data: bytes = b"x", **options: Any) -> Any:
    return channel.unary_unary("/penstock.Echo/Unary")(data, **options)


def bidi(channel: Channel, messages: List[bytes]) -> List[bytes]:
    return list(channel.stream_stream("/penstock.Echo/Bidi")(messages))


def recorder(log: List[Any], name: str = "", events: Tuple[str, ...] = EVENTS) -> Only:
    def seen(event: str) -> Callable[[Hop], None]:
        return lambda hop: log.append((name, event) if name else event)

    interceptor = Only(**{event: seen(event) for event in events})
    interceptor.name = name
    return interceptor


# ---- What is called, and when ----


def test_every_event_of_a_call_is_seen_once_in_order(channel: Channel) -> None:
    log: List[str] = []
    channel.add_interceptor(recorder(log, events=EVENTS[:7]))
    assert unary(channel) == b"x"
    outbound = [event for event in log if event in ("on_start", "on_send", "on_half_close")]
    inbound = [event for event in log if event in ("on_headers", "on_receive", "on_status")]
    assert outbound == ["on_start", "on_send", "on_half_close"]
    assert inbound == ["on_headers", "on_receive", "on_status"]
    assert "on_cancel" not in log
    log.clear()
    assert bidi(channel, [b"1", b"2"]) == [b"1", b"2"]
    assert [log.count(event) for event in EVENTS[:7]] == [1, 2, 1, 1, 2, 1, 0]


def test_signals_carry_their_numbers(channel: Channel) -> None:
    counts: Dict[str, List[int]] = {"on_demand": [], "on_sent": []}
    channel.add_interceptor(
        Only(
            on_demand=lambda hop: counts["on_demand"].append(hop.count),
            on_sent=lambda hop: counts["on_sent"].append(hop.count),
        )
    )
    assert bidi(channel, [b"1", b"2", b"3"]) == [b"1", b"2", b"3"]
    assert sum(counts["on_sent"]) == 3
    assert sum(counts["on_demand"]) >= 3


def test_what_a_hop_tells_of_its_call(channel: Channel) -> None:
    told: Dict[str, Any] = {}

    def start(hop: Hop) -> None:
        told.update(method=hop.method, kind=hop.kind, target=hop.target, authority=hop.authority)
        told.update(event=hop.event, deadline=hop.deadline, call_id=hop.call_id, count=hop.count)

    channel.add_interceptor(Only(on_start=start))
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"1"], timeout=20)
    assert list(call) == [b"1"]
    assert 19 < told.pop("deadline") <= 20
    assert told == {
        "method": "/penstock.Echo/Bidi",
        "kind": Kind.BIDI,
        "target": channel.target,
        "authority": channel.target,
        "event": EventKind.START,
        "call_id": call.call_id,
        "count": 0,
    }
    unary(channel)
    assert told["deadline"] is None
    assert told["kind"] is Kind.UNARY
    assert told["call_id"] > call.call_id


def test_only_what_is_overridden_is_called() -> None:
    from penstock._interceptor import overridden

    class Some(Interceptor):
        def on_start(self, hop: Hop) -> None: ...

        def on_status(self, hop: Hop) -> None: ...

    class More(Some):
        def destroy(self, hop: Hop) -> None: ...

    class NotOne:
        def on_send(self, hop: Hop) -> None: ...

    assert set(overridden(Interceptor())) == set()
    assert set(overridden(Some())) == {"on_start", "on_status"}
    assert set(overridden(More())) == {"destroy", "on_start", "on_status"}
    assert set(overridden(NotOne())) == {"on_send"}


def test_async_callbacks_are_refused(channel: Channel) -> None:
    class Later(Interceptor):
        async def on_start(self, hop: Hop) -> None:  # type: ignore[override]
            ...

    with pytest.raises(TypeError, match="async"):
        channel.add_interceptor(Later())


# ---- Where it stands ----


def test_higher_priorities_are_outside(server: str) -> None:
    log: List[Any] = []
    events = ("on_start", "on_status")
    inner, outer = recorder(log, "inner", events), recorder(log, "outer", events)
    with penstock.Channel(server, interceptors=[(inner, -5), recorder(log, "middle", events), (outer, 5)]) as channel:
        unary(channel)
        names = [name for name, event in log if event == "on_start"]
        assert names == ["outer", "middle", "inner"]
        assert [name for name, event in log if event == "on_status"] == names[::-1]
        listed = channel.interceptors
        assert [entry["name"] for entry in listed] == names
        assert [entry["priority"] for entry in listed] == [5, 0, -5]


def test_equal_priorities_keep_the_order_of_registration(channel: Channel) -> None:
    log: List[Any] = []
    for name in "abc":
        channel.add_interceptor(recorder(log, name, ("on_start",)))
    unary(channel)
    assert [name for name, _ in log] == ["a", "b", "c"]


def test_a_registration_can_be_moved_and_removed(channel: Channel) -> None:
    log: List[Any] = []
    first = channel.add_interceptor(recorder(log, "first", ("on_start",)), priority=2)
    second = channel.add_interceptor(recorder(log, "second", ("on_start",)), priority=1)
    assert first.id != second.id
    second.priority = 3
    assert second.priority == 3
    unary(channel)
    assert [name for name, _ in log] == ["second", "first"]
    assert [entry["id"] for entry in channel.interceptors] == [second.id, first.id]
    second.remove()
    second.remove()
    log.clear()
    unary(channel)
    assert [name for name, _ in log] == ["first"]
    with pytest.raises(penstock.NotFoundError):
        second.priority = 1
    for wrong in (2**31, -(2**31) - 1):
        with pytest.raises(penstock.InvalidArgumentError):
            first.priority = wrong
    with pytest.raises(TypeError):
        channel.add_interceptor(Only(), priority="high")  # type: ignore[arg-type]


def test_methods_and_kinds_are_filters(channel: Channel) -> None:
    log: List[Any] = []
    channel.add_interceptor(recorder(log, "exact", ("on_start",)), methods="/penstock.Echo/Unary")
    channel.add_interceptor(recorder(log, "service", ("on_start",)), methods=["/a.B/C", "/penstock.Echo/*"])
    channel.add_interceptor(recorder(log, "other", ("on_start",)), methods="/other.Service/*")
    channel.add_interceptor(recorder(log, "streams", ("on_start",)), kinds=[Kind.BIDI, Kind.SERVER_STREAM])
    channel.add_interceptor(recorder(log, "unary", ("on_start",)), kinds=Kind.UNARY)
    unary(channel)
    assert [name for name, _ in log] == ["exact", "service", "unary"]
    log.clear()
    bidi(channel, [b"1"])
    assert [name for name, _ in log] == ["service", "streams"]
    with pytest.raises(ValueError, match="no kind"):
        channel.add_interceptor(Only(), kinds=[])


def test_names(channel: Channel) -> None:
    class Auth(Interceptor):
        def on_start(self, hop: Hop) -> None: ...

    tokens = [
        channel.add_interceptor(Auth()),
        channel.add_interceptor(Auth(), name="given"),
        channel.add_interceptor(recorder([], "own name")),
    ]
    assert [token.name for token in tokens] == ["Auth", "given", "own name"]
    assert [entry["name"] for entry in channel.interceptors] == ["Auth", "given", "own name"]
    assert "given" in repr(tokens[1])


def test_a_call_keeps_the_chain_it_began_with(channel: Channel) -> None:
    log: List[str] = []
    token = channel.add_interceptor(recorder(log, events=("on_receive",)))
    turn = threading.Semaphore(1)

    def requests() -> Iterator[bytes]:
        for number in b"1234":
            turn.acquire()
            yield bytes([number])

    call = channel.stream_stream("/penstock.Echo/Bidi")(requests())
    assert next(call) == b"1"
    token.remove()
    late = channel.add_interceptor(recorder(log, "late", ("on_receive",)))
    for _ in range(3):
        turn.release()
        next(call)
    assert log == ["on_receive"] * 4
    late.remove()
    log.clear()
    unary(channel)
    assert log == []


def test_adding_and_removing_while_calls_run(channel: Channel) -> None:
    stop = threading.Event()
    failures: List[BaseException] = []

    def calls() -> None:
        try:
            while not stop.is_set():
                assert unary(channel, b"data") == b"data"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen: List[str] = []
    for number in range(200):
        token = channel.add_interceptor(recorder(seen, events=("on_start", "on_status")), priority=number % 7)
        token.priority = -number
        token.remove()
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert channel.interceptors == []


# ---- Changing what passes ----


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


# ---- State and values ----


def test_create_gives_each_call_a_state(channel: Channel) -> None:
    log: List[Any] = []

    class Counting(Interceptor):
        def create(self, hop: Hop) -> Any:
            if hop.method.endswith("ServerStream"):
                return Verdict.SKIP
            assert hop.event is EventKind.CREATE
            return {"call": hop.call_id, "messages": 0}

        def on_receive(self, hop: Hop) -> None:
            hop.state["messages"] += 1

        def on_status(self, hop: Hop) -> None:
            hop.state = (hop.state["call"] == hop.call_id, hop.state["messages"])

        def destroy(self, hop: Hop) -> None:
            log.append(hop.state)

    channel.add_interceptor(Counting())
    unary(channel)
    bidi(channel, [b"1", b"2", b"3"])
    list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
    assert log == [(True, 1), (True, 3)]


def test_destroy_alone_and_create_alone(channel: Channel) -> None:
    log: List[Any] = []

    class End(Interceptor):
        def destroy(self, hop: Hop) -> None:
            log.append(hop.state)

    class Begin(Interceptor):
        def create(self, hop: Hop) -> Any:
            return "state"

        def on_status(self, hop: Hop) -> None:
            log.append(hop.state)

    channel.add_interceptor(End())
    channel.add_interceptor(Begin())
    unary(channel)
    assert sorted(log, key=str) == [None, "state"]


def test_without_create_there_is_no_state(channel: Channel) -> None:
    failures: List[str] = []

    def start(hop: Hop) -> None:
        for use in (lambda: hop.state, lambda: setattr(hop, "state", 1)):
            try:
                use()
            except AttributeError as error:
                failures.append(str(error))

    channel.add_interceptor(Only(on_start=start))
    unary(channel)
    assert len(failures) == 2
    assert "create" in failures[0]


def test_values_are_shared_with_hops_and_the_caller(channel: Channel) -> None:
    thing = object()

    def set_all(hop: Hop) -> None:
        hop.set_value("thing", thing)
        hop.set_value("replaced", 1)
        hop.set_value("replaced", 2)
        hop.set_value("removed", 1)
        hop.set_value("removed", None)

    seen: List[Any] = []
    channel.add_interceptor(Only(on_start=set_all), priority=1)
    channel.add_interceptor(Only(on_status=lambda hop: seen.append(hop.get_value("thing"))))
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x")
    assert seen == [thing]
    assert outcome.values["thing"] is thing
    assert outcome.values["replaced"] == 2
    assert "removed" not in outcome.values
    assert outcome.values.get("removed", "default") == "default"
    with pytest.raises(KeyError):
        outcome.values["never"]
    call = channel.stream_stream("/penstock.Echo/Bidi")([b"1"])
    list(call)
    assert call.values["thing"] is thing
    with pytest.raises(RpcError) as caught:
        channel.unary_unary("/penstock.Probe/Unary", json_bytes)({"code": 5})
    assert caught.value.values["thing"] is thing


# ---- Deferring ----


def on_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


@pytest.mark.parametrize("event", EVENTS[:6])
def test_each_event_can_wait_for_another_thread(channel: Channel, event: str) -> None:
    resumed: List[int] = []
    threads: List[threading.Thread] = []

    def defer(hop: Hop) -> Verdict:
        ticket = hop.ticket()
        assert ticket.number == hop.ticket().number

        def go_on() -> None:
            resumed.append(hop.call_id)
            # A server may answer a unary call without waiting for its half-close.
            with contextlib.suppress(penstock.GoneError):
                ticket.resume()

        threads.append(on_thread(go_on))
        return Verdict.PAUSE

    channel.add_interceptor(Only(**{event: defer}))
    assert unary(channel, b"data", timeout=30) == b"data"
    assert bidi(channel, [b"1", b"2"]) == [b"1", b"2"]
    for thread in threads:
        thread.join()
    assert len(set(resumed)) == 2


def test_a_ticket_may_be_resolved_before_the_callback_returns(channel: Channel) -> None:
    def start(hop: Hop) -> Verdict:
        hop.ticket().resume()
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"


def test_resume_after_a_time(channel: Channel) -> None:
    def start(hop: Hop) -> Verdict:
        hop.ticket().resume_after(0.05)
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    _, outcome = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x", timeout=30)
    assert outcome.stats["duration_us"] >= 50_000


def test_a_ticket_is_used_once(channel: Channel) -> None:
    tickets: List[Ticket] = []

    def start(hop: Hop) -> Verdict:
        tickets.append(hop.ticket())
        with pytest.raises(penstock.InvalidArgumentError):
            tickets[0].resolve(Verdict.DROP)
        tickets[0].resume()
        with pytest.raises((penstock.AlreadyError, penstock.GoneError)):
            tickets[0].resume()
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    unary(channel)
    for use in (tickets[0].resume, tickets[0].drop, tickets[0].event, lambda: tickets[0].finish(1)):
        with pytest.raises((penstock.AlreadyError, penstock.GoneError)):
            use()


def test_a_ticket_ends_the_call(channel: Channel) -> None:
    def start(hop: Hop) -> Verdict:
        ticket = hop.ticket()
        on_thread(
            lambda: ticket.finish(StatusCode.PERMISSION_DENIED, "no", [("e.com/a.B", b"1")], {"x-by": "ticket"})
        )
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_start=start))
    with pytest.raises(RpcError, match="PERMISSION_DENIED: no") as caught:
        unary(channel, timeout=30)
    assert caught.value.trailing_metadata().get("x-by") == "ticket"
    assert caught.value.find_detail("a.B") is not None


def test_a_ticket_drops_a_message(channel: Channel) -> None:
    def send(hop: Hop) -> Optional[Verdict]:
        if hop.message != b"2":
            return None
        on_thread(hop.ticket().drop)
        return Verdict.PAUSE

    channel.add_interceptor(Only(on_send=send))
    assert bidi(channel, [b"1", b"2", b"3"]) == [b"1", b"3"]


def test_a_deferred_event_is_changed_on_another_thread(channel: Channel) -> None:
    def defer(change: Callable[[penstock.Event], None]) -> Callable[[Hop], Verdict]:
        def callback(hop: Hop) -> Verdict:
            ticket = hop.ticket()

            def go_on() -> None:
                event = ticket.event()
                change(event)
                ticket.resume()

            on_thread(go_on)
            return Verdict.PAUSE

        return callback

    def start(event: penstock.Event) -> None:
        assert event.kind is EventKind.START
        event.metadata["x-token"] = "fetched"

    def send(event: penstock.Event) -> None:
        assert event.message == b"{}"
        event.message = json.dumps({"code": 5, "message": "gone"}).encode()

    def status(event: penstock.Event) -> None:
        event.status.message = "gone, and told so"
        event.metadata["x-by"] = "event"

    channel.add_interceptor(Only(on_start=defer(start), on_send=defer(send), on_status=defer(status)))
    with pytest.raises(RpcError, match="NOT_FOUND: gone, and told so") as caught:
        channel.unary_unary("/penstock.Probe/Unary")(b"{}", timeout=30)
    assert caught.value.trailing_metadata().get("x-by") == "event"


@pytest.mark.parametrize(
    ("callback", "change"),
    [
        ("on_send", lambda event: setattr(event, "message", b"late")),
        ("on_start", lambda event: event.metadata.add("x-late", "1")),
        ("on_headers", lambda event: event.metadata.clear()),
        ("on_status", lambda event: setattr(event.status, "message", "late")),
        ("on_status", lambda event: event.status.trailers.add("x-late", "1")),
    ],
)
def test_an_event_is_not_changed_after_its_ticket_is_spent(
    channel: Channel, callback: str, change: Callable[[penstock.Event], None]
) -> None:
    refused: List[bool] = []

    def defer(hop: Hop) -> Verdict:
        ticket = hop.ticket()
        event = ticket.event()
        change(event)
        ticket.resume()
        try:
            change(event)
        except penstock.LibraryError:
            refused.append(True)
        return Verdict.PAUSE

    channel.add_interceptor(Only(**{callback: defer}))
    unary(channel)
    assert refused == [True]


def test_headers_are_held_until_the_first_message(channel: Channel) -> None:
    log: List[str] = []

    def headers(hop: Hop) -> Verdict:
        log.append("headers")
        return Verdict.HOLD

    channel.add_interceptor(Only(on_headers=headers, on_receive=lambda hop: log.append("receive")))
    channel.add_interceptor(Only(on_headers=lambda hop: log.append("above")), priority=1)
    assert unary(channel) == b"x"
    assert log == ["headers", "receive", "above"]


def test_the_deadline_runs_while_a_call_waits(channel: Channel) -> None:
    tickets: List[Ticket] = []

    def start(hop: Hop) -> Verdict:
        tickets.append(hop.ticket())
        return Verdict.PAUSE

    cancelled: List[StatusCode] = []
    channel.add_interceptor(Only(on_start=start, on_cancel=lambda hop: cancelled.append(hop.status.code)))
    with pytest.raises(RpcError) as caught:
        unary(channel, timeout=0.1)
    assert caught.value.code() == StatusCode.DEADLINE_EXCEEDED
    with pytest.raises(penstock.GoneError):
        tickets[0].resume()


# ---- Ending and answering ----


@pytest.mark.parametrize("event", EVENTS[:6])
def test_finish_from_each_event(channel: Channel, event: str) -> None:
    log: List[str] = []

    def finish(hop: Hop) -> None:
        hop.finish(StatusCode.ABORTED, f"in {event}", trailers={"x-by": "hop"})

    channel.add_interceptor(recorder(log, events=("on_status", "on_cancel")), priority=1)
    channel.add_interceptor(Only(**{event: finish}))
    with pytest.raises(RpcError, match=f"ABORTED: in {event}") as caught:
        unary(channel)
    assert caught.value.trailing_metadata().get("x-by") == "hop"
    assert log == ["on_status"]


def test_finish_with_ok_and_no_message_is_a_cardinality_violation(channel: Channel) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: hop.finish(0)))
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
    """Messages are delivered as they are asked for."""

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


# ---- Law 7 ----


def raising(hop: Hop) -> None:
    raise ZeroDivisionError(f"in {hop.event.name}")


@pytest.mark.parametrize("event", ["create", *EVENTS[:6], "on_demand", "on_sent"])
def test_an_exception_ends_the_call_and_reaches_the_caller(
    channel: Channel, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel.add_interceptor(Only(**{event: raising}), name="breaker")
    for call in (lambda: unary(channel, timeout=30), lambda: bidi(channel, [b"1"])):
        with caplog.at_level(logging.CRITICAL, "penstock"), pytest.raises(RpcError) as caught:
            call()
        assert caught.value.code() == StatusCode.INTERNAL
        assert "breaker" in caught.value.details()
        cause = caught.value.__cause__
        assert isinstance(cause, ZeroDivisionError)
        assert "raising" in "".join(traceback.format_tb(cause.__traceback__))
    assert unary_of_another_channel_works(channel)


def unary_of_another_channel_works(channel: Channel) -> bool:
    with penstock.Channel(channel.target) as other:
        return bool(unary(other) == b"x")


@pytest.mark.parametrize("returned", ["next", True, 99, 5, Verdict.SKIP, Verdict.DROP, Verdict.PAUSE])
def test_nonsense_ends_the_call(channel: Channel, returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    channel.add_interceptor(Only(on_start=lambda hop: returned), name="nonsense")
    with caplog.at_level(logging.CRITICAL, "penstock"), pytest.raises(RpcError, match="nonsense") as caught:
        unary(channel, timeout=30)
    assert caught.value.code() == StatusCode.INTERNAL


def test_exceptions_are_logged_or_go_to_the_hook(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    token = channel.add_interceptor(Only(on_start=raising), name="breaker")
    with pytest.raises(RpcError):
        unary(channel)
    (record,) = [record for record in caplog.records if record.name == "penstock"]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert "breaker" in record.getMessage()
    caplog.clear()
    heard: List[Any] = []
    penstock.set_exception_hook(lambda *args: heard.append(args))
    try:
        with pytest.raises(RpcError):
            unary(channel)
        token.remove()
        channel.add_interceptor(Only(destroy=raising), name="at the end")
        assert unary(channel) == b"x"
    finally:
        penstock.set_exception_hook(None)
    assert [(name, callback, type(error)) for name, callback, error in heard] == [
        ("breaker", "on_start", ZeroDivisionError),
        ("at the end", "destroy", ZeroDivisionError),
    ]
    assert caplog.records == []


def test_an_exception_in_on_cancel_is_logged(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    def finish(hop: Hop) -> None:
        hop.finish(StatusCode.ABORTED, "above")

    channel.add_interceptor(Only(on_headers=finish), priority=1)
    channel.add_interceptor(Only(on_cancel=raising), name="below")
    with pytest.raises(RpcError, match="ABORTED: above") as caught:
        unary(channel)
    assert caught.value.code() == StatusCode.ABORTED
    assert ["below" in record.getMessage() for record in caplog.records] == [True]


def test_a_blocking_call_in_a_callback_is_refused(channel: Channel) -> None:
    caught: List[Exception] = []

    def start(hop: Hop) -> None:
        if hop.method.endswith("Unary"):
            try:
                list(channel.unary_stream("/penstock.Echo/ServerStream")(b"x"))
            except penstock.WouldDeadlockError as error:
                caught.append(error)

    channel.add_interceptor(Only(on_start=start))
    assert unary(channel) == b"x"
    assert len(caught) == 1


def test_callbacks_may_remove_themselves_and_close_the_channel(server: str) -> None:
    channel = penstock.Channel(server)
    tokens: List[Registration] = []

    def once(hop: Hop) -> None:
        tokens[0].remove()

    tokens.append(channel.add_interceptor(Only(on_start=once)))
    assert unary(channel) == b"x"
    assert channel.interceptors == []
    channel.add_interceptor(Only(on_start=lambda hop: channel.close()))
    with pytest.raises(RpcError) as caught:
        unary(channel)
    assert caught.value.code() == StatusCode.CANCELLED


def test_cancel_is_told_to_the_hops(channel: Channel) -> None:
    log: List[str] = []
    channel.add_interceptor(recorder(log, events=("on_status", "on_cancel")))
    call = channel.unary_stream("/penstock.Probe/HangStream")(b"")
    assert next(call) == b"first"
    await_hanging(channel, 1)
    log.clear()
    call.cancel()
    assert call.code() == StatusCode.CANCELLED
    assert log == ["on_status"]
