"""Interceptors: classes whose methods C calls as the events of a call pass."""

from __future__ import annotations

import difflib
import inspect
import sys
import warnings
import weakref
from typing import Any, Awaitable, Callable, Dict, Iterable, Optional, Union

from .. import _raw
from .._handles.errors import InterceptorWarning
from .._handles.verdict import Kinds, Level, Verdict
from .completion import CALLBACKS, CompletionInterceptor
from .connection import ConnectionEvent
from .executor import Executor
from .hop import Hop
from .sync import SyncInterceptor
from .trampolines import EVENTS, SIGNALS

# The result of a callback that decides over its event. An `async def` callback returns an awaitable.
Decision = Union[Verdict, Awaitable[Optional[Verdict]], None]


class Interceptor:
    """Sees and changes what passes in a call, in both directions. Override the methods that you need; the others
    cost nothing.

    Each callback gets the `Hop`, and returns None (as `Verdict.NEXT`) or a `Verdict`; its docstring ends with the
    verdicts that it may return. Callbacks run on the thread that drives the runtime, one at a time per runtime (with
    ``loops`` of `Runtime`, one at a time per channel): a thread in a blocking call must not hold a lock that a
    callback takes, and a callback must make no blocking call on the same runtime (WouldDeadlockError). Each callback
    runs in a fresh copy of the context (`contextvars`) of the code that made the call. An exception ends the call
    with INTERNAL; the caller's `RpcError` has it as its ``__cause__``.

    On a channel of `penstock.aio` callbacks other than `on_pick` may be ``async def``: the event waits for them.
    """

    # The name in error messages and lists; if empty, the class's name.
    name: str = ""
    # The level. At the object level messages are the caller's objects, otherwise the bytes that are sent.
    level: Level = Level.BYTES
    # Whether each attempt of a call has a hop of its own, below the hops that exist once per call. Not allowed with
    # `Level.OBJECT`.
    per_attempt: bool = False
    # How many bytes of request messages are recorded for `Verdict.RESTART`. With 0 nothing is recorded, and RESTART
    # is not possible.
    replay_bytes: int = 0
    # How many times this interceptor may restart one call.
    max_restarts: int = 1
    # With `replay_bytes`: the kinds of calls in which response headers wait at the hop until `on_receive` or
    # `on_status` has returned NEXT, because RESTART is possible only as long as they have not left it. None: unary
    # calls and client streams. An empty tuple: no kind.
    headers_wait: Kinds = None
    # How many message bytes HOLD may park per call and lane; 0 is 65536.
    hold_bytes: int = 0
    # The executors that run callbacks: one for both lanes, or one for each lane. None: the thread that drives the
    # runtime.
    executor: Optional[Executor] = None
    outbound_executor: Optional[Executor] = None
    inbound_executor: Optional[Executor] = None

    def create(self, hop: Hop) -> Any:
        """A call has come to this interceptor. The returned object becomes ``hop.state``; `Verdict.SKIP`:
        the interceptor takes no part in this call."""

    def destroy(self, hop: Hop) -> Optional[Awaitable[None]]:
        """The last callback of the hop: called exactly once for each `create` that did not return SKIP."""

    def on_start(self, hop: Hop) -> Decision:
        """The call starts, and nothing has been sent: metadata, method, authority and deadline can be changed.
        Verdicts: NEXT, PAUSE, HOLD, TAKE."""

    def on_send(self, hop: Hop) -> Decision:
        """A message to the server. Verdicts: NEXT, PAUSE, HOLD, DROP."""

    def on_half_close(self, hop: Hop) -> Decision:
        """The caller is done sending. Verdicts: NEXT, PAUSE, HOLD with a ticket."""

    def on_headers(self, hop: Hop) -> Decision:
        """Response headers; a trailers-only answer has none. Verdicts: NEXT, PAUSE, HOLD."""

    def on_receive(self, hop: Hop) -> Decision:
        """A message from the server. Verdicts: NEXT, PAUSE, HOLD, DROP."""

    def on_status(self, hop: Hop) -> Decision:
        """The call's status has come, with details and trailers; it can be changed. Verdicts: NEXT, PAUSE, HOLD with
        a ticket, RESTART."""

    def on_cancel(self, hop: Hop) -> Optional[Awaitable[None]]:
        """Something other than this hop has ended the call: a hop above; or a cancel or the deadline, after this
        hop's TAKE or while it held the status. No `on_status` follows."""

    def on_demand(self, hop: Hop) -> Optional[Awaitable[None]]:
        """The layers above ask for ``hop.count`` more messages from the server."""

    def on_sent(self, hop: Hop) -> Optional[Awaitable[None]]:
        """The transport has taken ``hop.count`` messages, or hops below have dropped them, since the last
        `on_sent`."""

    def on_connection(self, event: ConnectionEvent) -> Optional[Awaitable[None]]:
        """Reports an event of a connection of the channel, or of any channel of the runtime. An exception is only
        reported (`set_exception_hook`). An interceptor that has no other callback takes no part in calls. An
        interceptor in the options of a call gets no connection events."""

    def on_pick(self, hop: Hop) -> Optional[Verdict]:
        """The address ``hop.address`` was picked for this attempt, and nothing has been sent to it. Only with
        ``per_attempt``; always on the thread that drives the runtime. Verdicts: NEXT; DROP, which refuses the
        address, so that another one is picked."""


_CALLBACKS = ("create", "destroy", *EVENTS, *SIGNALS, "on_connection", "on_pick")


class Native:
    """An interceptor whose callbacks are C functions. It fills the `penstock_interceptor` table itself, once for each
    registration."""

    name: str = ""
    # Whether it may be a synchronous one.
    may_have_function = True

    def _fill(self, table: _raw.penstock_interceptor) -> None:
        """Overwrites all of ``table`` but its ``struct_size``. The registration owns the user data in it."""
        raise NotImplementedError


def function_of(interceptor: object) -> Optional[Callable[[Any], Any]]:
    """The `intercept` function of a synchronous interceptor; None if the interceptor has callbacks instead.
    TypeError: it has both, or its function is async."""
    function: Optional[Callable[[Any], Any]] = getattr(interceptor, "intercept", None)
    if function is None:
        return None
    name = type(interceptor).__name__
    if not callable(function):
        raise TypeError(f"{name}.intercept is not callable")
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{name}.intercept is async, which is not supported")
    if overridden(interceptor):
        raise TypeError(f"{name} has both intercept and callbacks: register two interceptors")
    return function


def overridden(interceptor: object) -> Dict[str, Callable[[Any], Any]]:
    """The callbacks that ``interceptor`` itself defines, as bound methods by name. TypeError: a callback is not
    callable, or is an async `on_pick`."""
    found = {}
    for callback in _CALLBACKS:
        method = getattr(interceptor, callback, None)
        if method is None or getattr(method, "__func__", method) is getattr(Interceptor, callback):
            continue
        if not callable(method):
            raise TypeError(f"{type(interceptor).__name__}.{callback} is not callable")
        if callback == "on_pick" and inspect.iscoroutinefunction(method):
            raise TypeError(f"{type(interceptor).__name__}.on_pick is async, but the choice of an address can't wait")
        found[callback] = method
    return found


# ---- What may be registered ----

# The classes whose methods have been checked, so that each class warns once.
_seen: weakref.WeakSet[type] = weakref.WeakSet()


def check_interceptor(interceptor: object) -> None:
    """Checks that an object is an interceptor; TypeError if not. Warns of methods whose names look like misspelt
    names of callbacks."""
    if isinstance(interceptor, Native):
        return
    if isinstance(interceptor, type):
        name = interceptor.__name__
        raise TypeError(f"{name} is a class, not an interceptor: register an instance of it, {name}(...)")
    if isinstance(interceptor, SyncInterceptor):
        callbacks: Iterable[str] = ("intercept",)
    elif isinstance(interceptor, CompletionInterceptor):
        callbacks = ("create", *CALLBACKS)
    else:
        callbacks = ("intercept", *_CALLBACKS)
        if not any(getattr(interceptor, callback, None) is not None for callback in callbacks):
            raise TypeError(f"{interceptor!r} is no interceptor: it has none of {', '.join(callbacks)}")
    kind = type(interceptor)
    names = list(getattr(interceptor, "__dict__", ()))
    if kind not in _seen:
        names += dir(kind)
    for name in names:
        meant = _meant(name, callbacks)
        if meant is not None and callable(getattr(interceptor, name, None)):
            text = f"{kind.__name__}.{name} is not a callback and is never called; did you mean {meant}?"
            warnings.warn(text, InterceptorWarning, stacklevel=_stack_level())
    _seen.add(kind)


def _meant(name: str, callbacks: Iterable[str]) -> Optional[str]:
    """The callback whose name is close to ``name``; None: there is none, or ``name`` is itself the name of a
    callback."""
    if name.startswith("_") or name in callbacks or hasattr(Interceptor, name):
        return None
    begins = name[:2].lower()
    # The user's class may well have a method with a callback's name without "on_", such as "start" or "status".
    plain = {each.replace("_", ""): each for each in callbacks if not each.startswith("on_") or begins == "on"}
    near = difflib.get_close_matches(name.replace("_", "").lower(), plain, 1, 0.8)
    # A name that only adds to a callback's name, such as "created" or "intercept_all", is no misspelling.
    if not near or name.startswith(plain[near[0]]):
        return None
    return plain[near[0]]


def _stack_level() -> int:
    """The stack level of the first caller outside this package, for a warning that points there."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("penstock."):
        level, frame = level + 1, frame.f_back
    return level
