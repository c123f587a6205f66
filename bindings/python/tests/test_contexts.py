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
from helpers import Only, eventually, on_thread, unary
from penstock import Channel, Completion, CompletionInterceptor, Hop, Interceptor, Kind, Level, Metadata, StatusCode

USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER", default="nobody")
THREADS, CALLS = 8, 200
FIELD = "x-user"


class Seen:
    """Notes the user that each callback of a call sees, and changes the variable there."""

    def __init__(self) -> None:
        self.wrong: List[Tuple[str, str, str]] = []
        self.counts: Dict[str, int] = {}
        self._lock = threading.Lock()

    def note(self, where: str, expected: str) -> None:
        found = USER.get()
        USER.set(f"changed in {where}")
        with self._lock:
            self.counts[where] = self.counts.get(where, 0) + 1
            if found != expected:
                self.wrong.append((where, found, expected))


def user_of(metadata: Any) -> str:
    return str(metadata[FIELD])


class Plain(Interceptor):
    """Notes the user in every callback, with a state (`create`) that has the user of the call's metadata."""

    def __init__(self, seen: Seen, level: Level = Level.BYTES) -> None:
        self.seen = seen
        self.level = level

    def create(self, hop: Hop) -> str:
        user = user_of(hop.metadata)
        self.seen.note("create", user)
        return user

    def on_start(self, hop: Hop) -> None:
        self.seen.note("on_start", hop.state)

    def on_send(self, hop: Hop) -> None:
        self.seen.note("on_send", hop.state)

    def on_half_close(self, hop: Hop) -> None:
        self.seen.note("on_half_close", hop.state)

    def on_headers(self, hop: Hop) -> None:
        self.seen.note("on_headers", hop.state)

    def on_receive(self, hop: Hop) -> None:
        self.seen.note("on_receive", hop.state)

    def on_status(self, hop: Hop) -> None:
        self.seen.note("on_status", hop.state)

    def on_demand(self, hop: Hop) -> None:
        self.seen.note("on_demand", hop.state)

    def on_sent(self, hop: Hop) -> None:
        self.seen.note("on_sent", hop.state)

    def destroy(self, hop: Hop) -> None:
        self.seen.note("destroy", hop.state)


class Stateless(Interceptor):
    """Has no `create`: the hop is found by the registration alone."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def on_start(self, hop: Hop) -> None:
        self.seen.note("on_start", user_of(hop.metadata))

    def on_send(self, hop: Hop) -> None:
        self.seen.note("on_send", hop.message.decode())

    def on_receive(self, hop: Hop) -> None:
        self.seen.note("on_receive", hop.message.decode())


class Executed(Plain):
    """The same on threads of a pool, one for each lane."""

    def __init__(self, seen: Seen, pool: ThreadPoolExecutor) -> None:
        super().__init__(seen)
        self.outbound_executor = penstock.Executor(pool.submit)
        self.inbound_executor = penstock.Executor(pool.submit)


class Completed(CompletionInterceptor):
    """The asynchronous style: one object per call, whose completions a pool calls later."""

    def __init__(self, seen: Seen, pool: Optional[ThreadPoolExecutor] = None) -> None:
        self.seen = seen
        self.pool = pool
        self.user = ""

    def create(self, method: str, kind: Kind) -> Completed:
        made = Completed(self.seen, self.pool)
        made.user = USER.get()
        USER.set("changed in create")
        return made

    def went(self, where: str, done: Completion) -> None:
        self.seen.note(where, self.user)
        if self.pool is None:
            done.next()
        else:
            self.pool.submit(done.next)

    def on_start(self, metadata: Metadata, done: Completion) -> None:
        assert user_of(metadata) == self.user
        self.went("on_start", done)

    def on_send(self, message: bytes, done: Completion) -> None:
        self.went("on_send", done)

    def on_half_close(self, done: Completion) -> None:
        self.went("on_half_close", done)

    def on_headers(self, metadata: Metadata, done: Completion) -> None:
        self.went("on_headers", done)

    def on_receive(self, message: bytes, done: Completion) -> None:
        self.went("on_receive", done)

    def on_status(self, status: penstock.Status, done: Completion) -> None:
        self.went("on_status", done)


class Synchronous(penstock.SyncInterceptor):
    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def intercept(self, call: penstock.InterceptedCall) -> None:
        user = user_of(call.metadata)
        self.seen.note("intercept", user)
        call.next()
        if USER.get() != "changed in intercept":
            self.seen.wrong.append(("after next", USER.get(), user))


class Paused(Interceptor):
    """Pauses each start, and lets it go on from another thread."""

    def __init__(self, seen: Seen, pool: ThreadPoolExecutor) -> None:
        self.seen = seen
        self.pool = pool

    def on_start(self, hop: Hop) -> penstock.Verdict:
        self.seen.note("on_start", user_of(hop.metadata))
        self.pool.submit(hop.ticket().resume)
        return penstock.Verdict.PAUSE

    def on_send(self, hop: Hop) -> None:
        self.seen.note("on_send", hop.message.decode())


class Asks(Interceptor):
    """Makes a side call at each start, whose hops and whose `on_reply` have the context of the callback."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def on_start(self, hop: Hop) -> penstock.Verdict:
        user = user_of(hop.metadata)
        self.seen.note("on_start", user)
        USER.set(f"side of {user}")
        ticket = hop.ticket()

        def have(response: Optional[bytes], outcome: penstock.CompletedCall) -> None:
            self.seen.note("on_reply", f"side of {user}")
            ticket.resume()

        mine = {FIELD: f"side of {user}"}
        hop.unary("/penstock.Echo/Unary", USER.get().encode(), have, metadata=mine)
        return penstock.Verdict.PAUSE


class AsksSynchronously(penstock.SyncInterceptor):
    """Makes a side call with a stub's method, in the function of the interceptor."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def intercept(self, call: penstock.InterceptedCall) -> None:
        user = user_of(call.metadata)
        self.seen.note("intercept", user)
        USER.set(f"side of {user}")
        ask = call.side_channel().unary_unary("/penstock.Echo/Unary")
        ask(USER.get().encode(), metadata={FIELD: USER.get()})
        call.next()


def picker(seen: Seen) -> Callable[[penstock.Pick], int]:
    def pick(asked: penstock.Pick) -> int:
        seen.note("picker", user_of(asked.metadata))
        return 0

    return pick


def serializers(seen: Seen) -> Tuple[Callable[[str], bytes], Callable[[bytes], str]]:
    def dump(user: str) -> bytes:
        seen.note("serializer", user)
        return user.encode()

    def load(data: bytes) -> str:
        seen.note("deserializer", data.decode())
        return data.decode()

    return dump, load


Add = Callable[[Channel, Seen, ThreadPoolExecutor], object]
STYLES: Dict[str, Add] = {
    "plain": lambda channel, seen, pool: channel.add_interceptor(Plain(seen)),
    "stateless": lambda channel, seen, pool: channel.add_interceptor(Stateless(seen)),
    "per attempt": lambda channel, seen, pool: channel.add_interceptor(Plain(seen), per_attempt=True),
    "object level": lambda channel, seen, pool: channel.add_interceptor(Plain(seen, Level.OBJECT)),
    "executors": lambda channel, seen, pool: channel.add_interceptor(Executed(seen, pool)),
    "completions": lambda channel, seen, pool: channel.add_interceptor(Completed(seen)),
    "completions later": lambda channel, seen, pool: channel.add_interceptor(Completed(seen, pool)),
    "synchronous": lambda channel, seen, pool: channel.add_interceptor(Synchronous(seen)),
    "tickets": lambda channel, seen, pool: channel.add_interceptor(Paused(seen, pool)),
    "side calls": lambda channel, seen, pool: (
        channel.add_interceptor(Asks(seen), 10),
        channel.add_interceptor(Stateless(seen)),
    ),
    "side channel": lambda channel, seen, pool: (
        channel.add_interceptor(AsksSynchronously(seen), 10),
        channel.add_interceptor(Stateless(seen)),
    ),
    "picker": lambda channel, seen, pool: channel.set_picker(picker(seen)),
    "serializers": lambda channel, seen, pool: None,
}


@pytest.mark.parametrize("style", STYLES)
def test_each_callback_has_the_context_of_its_call(server: str, style: str) -> None:
    seen = Seen()
    with ThreadPoolExecutor(4) as pool, Channel(server, tls=False) as channel:
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
    assert seen.counts["serializer"] >= THREADS * CALLS
    assert len(seen.counts) >= 4 + (style != "serializers")


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
