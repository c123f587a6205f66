"""The contexts (PEP 567) in which the program's functions run: each call's own, or that of a registration."""

from __future__ import annotations

import contextlib
import contextvars
import decimal
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

import penstock
from context_styles import FIELD, OWN, STYLES, USER, Encoding, Plain, Seen, Stateless, serializers
from helpers import Only, eventually, on_thread, unary
from penstock import Channel, Completion, CompletionInterceptor, Hop, Interceptor, Kind, Level, Metadata, StatusCode
from penstock._handles.context import CallContext

THREADS, CALLS = 8, 200


@pytest.mark.parametrize("style", STYLES)
def test_each_callback_has_the_context_of_its_call(server: str, style: str) -> None:
    seen = Seen()
    codec = Encoding(seen) if style == "codec" else None
    with ThreadPoolExecutor(4) as pool, Channel(server, tls=False, codec=codec) as channel:
        STYLES[style](channel, seen, pool)
        call = channel.unary_unary("/penstock.Echo/Unary", *serializers(seen))
        stream = channel.stream_stream("/penstock.Echo/Bidi", *serializers(seen))

        def requests(user: str) -> Iterator[str]:
            seen.note("iterator", user)
            yield user
            seen.note("iterator again", "changed in iterator")

        def work(thread: int) -> None:
            for number in range(CALLS):
                user = f"{thread}-{number}"
                USER.set(user)
                mine = {FIELD: user}
                if number % 10:
                    assert call(user, metadata=mine, timeout=60) == user
                else:
                    running = stream(requests(user), metadata=mine, timeout=60)
                    USER.set("another context")
                    assert list(running) == [user]
                    USER.set(user)
                assert USER.get() == user

        with ThreadPoolExecutor(THREADS) as callers:
            list(callers.map(work, range(THREADS)))
    assert seen.wrong == []
    assert min(seen.counts.values()) >= THREADS * CALLS // 10
    assert seen.counts["encode" if codec else "serializer"] >= THREADS * CALLS
    assert len(seen.counts) >= 4 + (style not in ("serializers", "codec"))
    assert seen.counts.keys() >= OWN.get(style, set())


@pytest.mark.parametrize("style", ["plain", "executors", "completions", "completions later"])
def test_a_call_that_a_hop_above_ends_has_its_context(server: str, style: str) -> None:
    seen = Seen()
    with ThreadPoolExecutor(4) as pool, Channel(server, tls=False) as channel:
        channel.add_interceptor(Only(on_headers=lambda hop: hop.end(StatusCode.ABORTED)), 10)
        STYLES[style](channel, seen, pool)

        def work(thread: int) -> None:
            for number in range(CALLS // 10):
                user = f"{thread}-{number}"
                USER.set(user)
                with pytest.raises(penstock.RpcError):
                    unary(channel, user.encode(), metadata={FIELD: user})

        with ThreadPoolExecutor(THREADS) as callers:
            list(callers.map(work, range(THREADS)))
        eventually(lambda: seen.counts.get("on_cancel") == THREADS * CALLS // 10)
    assert seen.wrong == []


@pytest.mark.parametrize("late", [False, True], ids=["callbacks before the end", "callbacks after the end"])
def test_calls_that_share_options_have_contexts_of_their_own(
    server: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls without metadata share their options, and the place of their context in these. On an executor callbacks
    may run when their call has ended and the next one has begun."""
    monkeypatch.setattr(CallContext, "outlives_calls", False)
    pairs: List[Tuple[str, str]] = []
    goes_on = threading.Event()
    if not late:
        goes_on.set()

    def ended(hop: Hop) -> None:
        assert goes_on.wait(60)
        pairs.append((hop.state, USER.get()))

    with ThreadPoolExecutor(1) as pool, Channel(server, tls=False) as channel:
        interceptor = Only(create=lambda hop: USER.get(), on_start=lambda hop: None, destroy=ended)
        if late:
            interceptor.inbound_executor = penstock.Executor(pool.submit)
        channel.add_interceptor(interceptor)

        def work(thread: int) -> None:
            for number in range(CALLS if not late else 5):
                USER.set(f"{thread}-{number}")
                unary(channel)

        with ThreadPoolExecutor(THREADS) as callers:
            list(callers.map(work, range(THREADS)))
        goes_on.set()
        eventually(lambda: len(pairs) == THREADS * (CALLS if not late else 5))
    assert len(set(pairs)) == len(pairs)
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


def test_a_call_of_the_options_and_of_the_runtime(server: str) -> None:
    seen = Seen()
    with penstock.Runtime() as runtime:
        runtime.add_interceptor(Stateless(seen))
        with Channel(server, tls=False, runtime=runtime) as channel:
            USER.set("me")
            assert unary(channel, b"me", metadata={FIELD: "me"}) == b"me"
            assert unary(channel, b"me", metadata={FIELD: "me"}, interceptors=[Plain(seen)]) == b"me"
            assert channel.stream_unary("/penstock.Echo/ClientStream")([b"me"], metadata={FIELD: "me"}) == b"me"
            running = channel.unary_stream("/penstock.Echo/ServerStream")(b"me", metadata={FIELD: "me"})
            assert set(running) == {b"me"}
    assert seen.wrong == []
    assert USER.get() == "me"
    assert seen.counts["on_start"] == 5


def test_a_restart_keeps_the_context(channel: Channel) -> None:
    users: List[str] = []

    class Again(Interceptor):
        replay_bytes = 1000

        def on_status(self, hop: Hop) -> Optional[penstock.Verdict]:
            users.append(USER.get())
            return penstock.Verdict.RESTART if hop.can_restart and hop.status.code is StatusCode.ABORTED else None

    def fail_once(hop: Hop) -> None:
        users.append(USER.get())
        USER.set("changed")
        if hop.attempt == 1:
            hop.end(StatusCode.ABORTED)

    channel.add_interceptor(Again(), 10)
    channel.add_interceptor(Only(on_start=fail_once))
    USER.set("me")
    assert unary(channel) == b"x"
    assert users == ["me"] * 4


def test_exceptions_are_reported_in_the_context_of_their_callback(channel: Channel) -> None:
    users: List[Tuple[str, str]] = []

    def fail(hop: Hop) -> None:
        USER.set("changed")
        raise ValueError

    penstock.set_exception_hook(lambda name, callback, error: users.append((callback, USER.get())))
    try:
        for callback in ("create", "on_start", "on_send", "on_status", "destroy"):
            USER.set(callback)
            registration = channel.add_interceptor(Only(**{callback: fail}))
            try:
                unary(channel)
            except penstock.RpcError as error:
                assert isinstance(error.__cause__, ValueError)  # noqa: PT017
            registration.remove()
    finally:
        penstock.set_exception_hook(None)
    assert users == [(callback, callback) for callback in ("create", "on_start", "on_send", "on_status", "destroy")]


def test_an_object_of_one_call_has_what_its_registration_has(channel: Channel) -> None:
    """The context for a call that no Python code has made, and the objects that a side call keeps."""
    found: List[Any] = []

    class Making(CompletionInterceptor):
        def create(self, method: str, kind: Kind) -> Making:
            return Making()

        def on_start(self, metadata: Metadata, done: Completion) -> None:
            found.extend((done.hop._registered.context, done.hop._keeps))
            done.next()

    USER.set("registering")
    channel.add_interceptor(Making())
    USER.set("calling")
    unary(channel)
    assert found[0][USER] == "registering"
    assert found[1] == (channel._kept,)


def refuse(_: object) -> None:
    raise ValueError


class Executing(Interceptor):
    def __init__(self) -> None:
        self.executor = penstock.Executor(refuse)

    def on_start(self, hop: Hop) -> None: ...


@pytest.mark.parametrize(
    ("make", "callback"),
    [
        (Executing, "submit"),
        (lambda: penstock.ready.Logging(refuse, events=["start"]), "write"),
        (lambda: penstock.ready.BearerToken(refuse, allow_cleartext=True), "source"),
        (lambda: penstock.ready.BearerToken(refuse, allow_cleartext=True, in_thread=False), "source"),
    ],
)
def test_exceptions_of_other_functions_are_reported_in_their_context(
    channel: Channel, make: Callable[[], Any], callback: str
) -> None:
    users: List[Tuple[str, str]] = []

    def made() -> Any:
        USER.set("maker")
        return make()

    channel.add_interceptor(contextvars.copy_context().run(made))
    USER.set("caller")
    penstock.set_exception_hook(lambda name, callback, error: users.append((callback, USER.get())))
    try:
        with contextlib.suppress(penstock.RpcError):
            unary(channel)
    finally:
        penstock.set_exception_hook(None)
    assert users == [(callback, "maker")]


def test_an_exception_does_not_refer_to_what_the_driving_thread_handles(channel: Channel) -> None:
    def fail(hop: Hop) -> None:
        try:
            raise KeyError("its own")
        except KeyError:
            raise ValueError("of the callback")  # noqa: B904

    channel.add_interceptor(Only(on_start=fail))
    try:
        raise LookupError("of the caller")
    except LookupError:
        with pytest.raises(penstock.RpcError) as raised:
            unary(channel)
    cause = raised.value.__cause__
    assert isinstance(cause, ValueError)
    assert isinstance(cause.__context__, KeyError)
    assert cause.__context__.__context__ is None


def test_the_decimal_context_is_the_call_s(channel: Channel) -> None:
    found: List[int] = []
    channel.add_interceptor(Only(on_start=lambda hop: found.append(decimal.getcontext().prec)))

    def work(precision: int) -> None:
        with decimal.localcontext() as mine:
            mine.prec = precision
            unary(channel)

    for precision in (5, 7):
        on_thread(lambda precision=precision: work(precision)).join()  # type: ignore[misc]
    assert found == [5, 7]


# ---- Functions that belong to no call ----


def test_what_belongs_to_no_call_has_the_context_of_its_registration(server: str) -> None:
    seen: Dict[str, str] = {}
    connected = threading.Event()

    def note(where: str) -> str:
        seen[where] = USER.get()
        USER.set("changed")
        return where

    class Addresses(penstock.Resolver):
        def resolve(self) -> None:
            note("resolve")
            self.push({"addresses": [{"address": f"ipv4:{server}"}]})

    def submit(job: penstock.Job) -> None:
        note("submit")
        job()

    def write(line: str) -> None:
        note("write")

    def source(request: penstock.ready.TokenRequest) -> str:
        return note("source")

    def changed(state: penstock.Connectivity) -> bool:
        note("watch")
        return True

    def connection(event: penstock.ConnectionEvent) -> None:
        note("on_connection")
        connected.set()

    class Executed(Interceptor):
        def on_start(self, hop: Hop) -> None:
            note("on_start")

    USER.set("registration")
    executed = Executed()
    executed.executor = penstock.Executor(submit)
    token = penstock.ready.BearerToken(source, allow_cleartext=True)
    with Channel("dns:///of-the-resolver", tls=False, resolver=Addresses()) as channel:
        channel.add_interceptor(Only(on_connection=connection))
        channel.add_interceptor(executed)
        channel.add_interceptor(penstock.ready.Logging(write))
        channel.add_interceptor(token)
        channel.watch_connectivity(changed)
        USER.set("call")
        assert unary(channel) == b"x"
        assert connected.wait(20)
        eventually(lambda: "watch" in seen)
    assert seen.pop("on_start") == "call"
    assert set(seen) == {"resolve", "submit", "write", "source", "watch", "on_connection"}
    assert set(seen.values()) == {"registration"}


def test_log_lines_of_a_call_have_its_context(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    users: List[str] = []

    class Notes(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            users.append(USER.get())
            return True

    def fail(request: Any) -> bytes:
        raise ValueError

    notes = Notes()
    logger = logging.getLogger("penstock")
    logger.addFilter(notes)
    try:
        channel.add_interceptor(Only(on_send=lambda hop: None), level=Level.OBJECT)
        call = channel.unary_unary("/penstock.Echo/Unary", fail)
        USER.set("me")
        with pytest.raises(penstock.RpcError):
            on_thread_of_its_own(lambda: call(b"x"))
    finally:
        logger.removeFilter(notes)
    assert users == ["me"]


def on_thread_of_its_own(action: Callable[[], object]) -> None:
    """Runs ``action`` on a thread, in a copy of this thread's context, and raises what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, action).result()
