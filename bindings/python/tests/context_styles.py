"""Interceptors of each style, and other functions of a program, that note in which context (PEP 567) they run."""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Tuple

import penstock
from penstock import Channel, Completion, CompletionInterceptor, Hop, Interceptor, Kind, Level, Metadata

USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER", default="nobody")
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

    def on_cancel(self, hop: Hop) -> None:
        self.seen.note("on_cancel", hop.state)

    def destroy(self, hop: Hop) -> None:
        self.seen.note("destroy", hop.state)


class Picking(Plain):
    """Plain for each attempt, with the callback that only such an interceptor may have."""

    def on_pick(self, hop: Hop) -> None:
        self.seen.note("on_pick", hop.state)


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
        made = type(self)(self.seen, self.pool)
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

    def on_cancel(self, status: penstock.Status) -> None:
        self.seen.note("on_cancel", self.user)

    def on_demand(self, hop: Hop) -> None:
        self.seen.note("on_demand", self.user)

    def on_sent(self, hop: Hop) -> None:
        self.seen.note("on_sent", self.user)


class CompletedPicking(Completed):
    def on_pick(self, hop: Hop) -> None:
        self.seen.note("on_pick", self.user)


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


class Encoding(penstock.Codec):
    """The codec of a channel, which takes the place of the serializers of each method."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def encode(self, message: str) -> bytes:
        self.seen.note("encode", message)
        return message.encode()

    def decode(self, data: bytes, deserializer: Any) -> str:
        self.seen.note("decode", data.decode())
        return data.decode()


Add = Callable[[Channel, Seen, ThreadPoolExecutor], object]
STYLES: Dict[str, Add] = {
    "plain": lambda channel, seen, pool: channel.add_interceptor(Plain(seen)),
    "stateless": lambda channel, seen, pool: channel.add_interceptor(Stateless(seen)),
    "per attempt": lambda channel, seen, pool: channel.add_interceptor(Picking(seen), per_attempt=True),
    "object level": lambda channel, seen, pool: channel.add_interceptor(Plain(seen, Level.OBJECT)),
    "executors": lambda channel, seen, pool: channel.add_interceptor(Executed(seen, pool)),
    "completions": lambda channel, seen, pool: channel.add_interceptor(Completed(seen)),
    "completions later": lambda channel, seen, pool: channel.add_interceptor(Completed(seen, pool)),
    "completions per attempt": lambda channel, seen, pool: (
        channel.add_interceptor(CompletedPicking(seen), per_attempt=True),
    ),
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
    "codec": lambda channel, seen, pool: None,
}
# Callbacks of a style that no other one has, or that other ones may lack.
OWN = {
    "plain": {"create", "on_demand", "on_sent", "destroy"},
    "per attempt": {"on_pick"},
    "completions": {"on_demand", "on_sent"},
    "completions per attempt": {"on_pick", "on_demand", "on_sent"},
    "codec": {"encode", "decode"},
}
