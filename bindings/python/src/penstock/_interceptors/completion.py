"""The asynchronous style: interceptors whose callbacks get a completion, to be called once, at any time and on any
thread."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, Optional

from .. import _raw
from .._handles.context import of_hop, run
from .._handles.ctrl_c import recover
from .._handles.errors import AlreadyError, GoneError, StateError, check_hop
from .._handles.metadata import Metadata, MetadataLike
from .._handles.objects import forget_again, own, registry
from .._handles.reports import report
from .._handles.status import DetailLike, Status, StatusCode, StatusLike, as_status
from .._handles.verdict import Kind, Kinds, Level, Verdict
from .._raw import constants as c
from .events import message_of, metadata_of, set_message, status_of
from .executor import Executor
from .hop import Hop, Registered
from .request import RequestFields
from .trampolines import finish, leave, verdict_of, words

_EVENTS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status")
# The callbacks that get a hop, and a status, instead of a completion: nothing waits for them.
_OF_HOPS = ("on_demand", "on_sent", "on_pick")
CALLBACKS = (*_EVENTS, "on_cancel", *_OF_HOPS)


class CompletionInterceptor:
    """Sees and changes what passes in a call, in asynchronous style. Each callback gets its event and a `Completion`;
    one of the completion's methods has to be called once, in the callback or later, on any thread. Until then the
    event waits, and later events of the same direction wait behind it, unless `Completion.hold` lets them be shown. A
    completion that is garbage-collected without being called ends the call with INTERNAL, and so does an exception in
    a callback.

    Override the methods that you need; the other events pass, and cost nothing. The callbacks of this class let their
    event pass, by ``done.next()``.
    """

    # These attributes mean the same as those of `Interceptor`.
    name: str = ""
    level: Level = Level.BYTES
    per_attempt: bool = False
    replay_bytes: int = 0
    max_restarts: int = 1
    headers_wait: Kinds = None
    hold_bytes: int = 0
    executor: Optional[Executor] = None
    outbound_executor: Optional[Executor] = None
    inbound_executor: Optional[Executor] = None

    def create(self, method: str, kind: Kind) -> Any:
        """A call has come. Returns the object whose methods see this call: a new object for each call, such as
        another `CompletionInterceptor`, or None for this interceptor itself. The object need not have all of the
        callbacks; the other events pass. `Verdict.SKIP`: the interceptor does not see the call."""

    def on_start(self, metadata: Metadata, done: Completion) -> None:
        """Before anything is sent: the request's metadata, which may be changed until ``done`` is called."""
        done._pass()

    def on_send(self, message: bytes, done: Completion) -> None:
        """A message to the server. ``done.next(other)`` replaces it."""
        done._pass()

    def on_half_close(self, done: Completion) -> None:
        """The caller is done sending."""
        done._pass()

    def on_headers(self, metadata: Metadata, done: Completion) -> None:
        """Response headers; a trailers-only answer has none."""
        done._pass()

    def on_receive(self, message: bytes, done: Completion) -> None:
        """A message from the server. ``done.next(other)`` replaces it."""
        done._pass()

    def on_status(self, status: Status, done: Completion) -> None:
        """The call has ended. A status of a local cancel or deadline can't be changed, and goes on by
        itself."""
        done._pass()

    def on_cancel(self, status: Status) -> None:
        """Something other than this hop has ended the call: no `on_status` follows."""

    def on_demand(self, hop: Hop) -> None:
        """The layers above ask for ``hop.count`` more messages from the server."""

    def on_sent(self, hop: Hop) -> None:
        """The transport has taken ``hop.count`` messages, or hops below have dropped them, since the last
        `on_sent`."""

    def on_pick(self, hop: Hop) -> Optional[Verdict]:
        """The address ``hop.address`` was picked for this attempt, as in `Interceptor.on_pick`. Only with
        ``per_attempt``. DROP refuses the address."""


class Completion(RequestFields):
    """Ends the wait of a callback's event, by `next`, `end` or `resolve`: one of them, once, on any thread. Until
    then the request can be read. AlreadyError: one of the methods has been called before. GoneError: the call has
    ended, or the event has gone on without the completion. Neither error changes the call.
    """

    __slots__ = ("__weakref__", "_handle", "_hop", "_open", "_registered", "_running")

    def __init__(self, handle: int, registered: Registered) -> None:
        self._handle: int = own(self, _raw.penstock_hop_release, handle)
        self._registered = registered
        self._hop: Optional[Hop] = None
        # Has one element until the completion is used. Only the thread that takes the element out may use the
        # completion.
        self._open = [True]
        self._running = True

    def next(self, message: Any = None) -> None:
        """Lets the event go on, with its changes. ``message``, if given, replaces the event's message."""
        if message is not None:
            # If the event does not wait any more, `_call` below raises GoneError.
            with contextlib.suppress(GoneError):
                set_message(self._handle, message)
        self._call(_raw.penstock_hop_resolve, c.NEXT)

    def end(
        self,
        code: StatusLike,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        """Ends the call at this hop, as `Hop.end` does."""
        status = as_status(code, message, details, trailers)
        self._call(_raw.penstock_hop_end_with, status._address())

    def resolve(self, verdict: Verdict) -> None:
        """Ends the event's wait with NEXT, DROP (messages), TAKE (start) or RESTART (status).
        InvalidArgumentError: this event does not allow the verdict; the completion can still be called."""
        self._call(_raw.penstock_hop_resolve, int(verdict))

    def hold(self) -> None:
        """Lets later events of the same direction be shown while this event waits; the completion is still to be
        called. Only in the callback. StateError: the callback has returned."""
        if not self._open:
            raise AlreadyError(c.E_ALREADY, "the completion has been called")
        result = _raw.penstock_hop_resolve(self._handle, c.HOLD)
        check_hop(self._handle, result, "the completion can't be used")

    @property
    def hop(self) -> Hop:
        """The hop; ask for it in the callback. In the callback all of its methods may be used; later only those for
        any thread. `Hop.end` ends the call even after the completion has been called."""
        if self._hop is None:
            if not self._running:
                raise StateError(c.E_STATE, "the callback has returned: ask for the hop in it")
            self._hop = Hop(self._handle, self._registered).retain()
        return self._hop

    def _pass(self) -> None:
        """Lets an event go on for which the program has no callback. Another thread may have ended the call
        meanwhile, which is no failure of the program's."""
        with contextlib.suppress(GoneError):
            self.next()

    def _end(self) -> None:
        """Notes that the callback has returned."""
        self._running = False
        if self._hop is not None:
            self._hop._end()

    def _call(self, function: Callable[[int, Any], int], value: Any) -> None:
        """Ends the event's wait by ``function(handle, value)``. Afterwards the C library treats the handle as a kept
        hop, which may still end the call. A completion must not do that, so a second use, on any thread, is refused
        here."""
        try:
            token = self._open.pop()
        except IndexError:
            raise AlreadyError(c.E_ALREADY, "the completion has been called") from None
        result = function(self._handle, value)
        if result not in (c.OK, c.E_ALREADY, c.E_GONE):
            self._open.append(token)
        check_hop(self._handle, result, "the completion can't be used")

    def _shown(self) -> None:
        if not self._open:
            raise StateError(c.E_STATE, "the completion has been called, so its event can't be used any more")


class _InCallback:
    """Guards views that are valid during one callback only: when `runs` is False, using a view raises StateError."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs = True

    def guard(self) -> None:
        if not self.runs:
            raise StateError(c.E_STATE, "allowed only in the callback")


def _call(callback: str, handle: int, number: Optional[int]) -> None:
    """Runs a callback that gets a completion. An exception is never raised into C: it ends the call instead."""
    registered: Any = registry.get(number)
    done = Completion(handle, registered)
    try:
        method = None if registered is None else getattr(registered.methods, callback, None)
        if method is None:
            done._pass()
            return
        try:
            run(of_hop(handle, registered), method, *_shown(callback, done), done)
        finally:
            done._end()
    except BaseException as error:
        _fail(registered, callback, handle, error)


def _shown(callback: str, done: Completion) -> tuple[Any, ...]:
    """The arguments of the callback besides its completion."""
    if callback in ("on_start", "on_headers"):
        return (metadata_of(done._handle, done._shown),)
    if callback in ("on_send", "on_receive"):
        return (message_of(done._handle),)
    if callback == "on_status":
        return (status_of(done._handle, done._shown),)
    return ()


def _fail(registered: Registered, callback: str, handle: int, error: BaseException) -> None:
    leave(handle, error)
    context = of_hop(handle, registered)
    finish(registered.name, callback, handle, error)
    run(context, report, registered.name, callback, error)


class _Unmade:
    """Sees a call whose `create` has raised, which could not end the call: ends it with INTERNAL."""

    def __init__(self, message: str) -> None:
        self._message = message

    def on_start(self, metadata: Metadata, done: Completion) -> None:
        # Another thread may have ended the call meanwhile.
        with contextlib.suppress(GoneError):
            done.end(StatusCode.INTERNAL, self._message)


def _drop(given: Dict[str, Any]) -> None:
    """Recovery for a trampoline that has not begun, so that no `Completion` exists: releases the event's handle,
    which ends the call."""
    _raw.penstock_hop_release(given["handle"])


def _end_begun(given: Dict[str, Any]) -> None:
    """Recovery for a trampoline that has begun: ends the call, and does not release the handle. If a `Completion` has
    been made, it owns the handle. If not, the handle's memory is lost, which is better than releasing it twice."""
    _raw.penstock_hop_end(given["handle"], StatusCode.INTERNAL.number, b"a signal's handler raised in a callback")


def _event_callback(callback: str) -> Any:
    def trampoline(handle: int, number: Optional[int]) -> None:
        _call(callback, handle, number)

    recover(trampoline, _drop, _end_begun)
    return _raw.penstock_async_callback(trampoline)


def _cancel(handle: int, number: Optional[int]) -> int:
    registered: Any = registry.get(number)
    if registered is None:
        return c.NEXT
    scope = _InCallback()
    try:
        method = getattr(registered.methods, "on_cancel", None)
        if method is not None:
            run(of_hop(handle, registered), method, status_of(handle, scope.guard))
    except BaseException as error:
        run(of_hop(handle, registered), report, registered.name, "on_cancel", error)
    finally:
        scope.runs = False
    return c.NEXT


def _hop_callback(callback: str) -> Any:
    """The trampoline of a callback that gets the hop."""

    def trampoline(handle: int, number: Optional[int]) -> int:
        registered: Any = registry.get(number)
        method = None if registered is None else getattr(registered.methods, callback, None)
        if method is None:
            return c.NEXT
        hop = Hop(handle, registered)
        try:
            return verdict_of(run(of_hop(handle, registered), method, hop), callback)
        except BaseException as error:
            _fail(registered, callback, handle, error)
        finally:
            hop._end()
        return c.NEXT

    recover(trampoline, lambda given: None)
    return _raw.penstock_hop_callback(trampoline)


def _create(handle: int, number: Optional[int], state: Any) -> int:
    registered: Any = registry.get(number)
    if registered is None:
        return c.NEXT
    try:
        method = _raw.penstock_request_method(_raw.penstock_hop_request(handle)) or b""
        kind = Kind(_raw.penstock_hop_kind(handle))
        made = run(of_hop(handle, registered), registered.methods.create, method.decode("utf-8", "replace"), kind)
    except BaseException as error:
        leave(handle, error)
        run(of_hop(handle, registered), report, registered.name, "create", error)
        made = _Unmade(words(registered.name, "create", error))
    if isinstance(made, Verdict):
        return int(made)
    methods = registered.methods if made is None else made
    state[0] = registry.add(registered.for_call(methods))
    return c.NEXT


def _destroy(handle: int, number: Optional[int]) -> None:
    registry.remove(number)


recover(_cancel, lambda given: None)
recover(_create, lambda given: None)
recover(_destroy, forget_again, forget_again)
_create_trampoline = _raw.penstock_hop_create(_create)
_destroy_trampoline = _raw.penstock_hop_destroy(_destroy)
_trampolines = {callback: _event_callback(callback) for callback in _EVENTS}
_trampolines.update((callback, _hop_callback(callback)) for callback in _OF_HOPS)
_trampolines["on_cancel"] = _raw.penstock_hop_callback(_cancel)


def set_callbacks(
    table: _raw.penstock_async_interceptor, interceptor: CompletionInterceptor, per_attempt: bool
) -> None:
    """Sets the callbacks that ``interceptor`` has."""
    factory = getattr(interceptor.create, "__func__", interceptor.create) is not CompletionInterceptor.create
    if factory:
        table.create = _create_trampoline
        table.destroy = _destroy_trampoline
    for callback, trampoline in _trampolines.items():
        method = getattr(interceptor, callback)
        # An object that a factory makes may have any callback, but `on_pick` is allowed with `per_attempt` only.
        may_have = factory and (per_attempt or callback != "on_pick")
        if may_have or getattr(method, "__func__", method) is not getattr(CompletionInterceptor, callback):
            setattr(table, callback, trampoline)
