"""Interceptors with `async def` callbacks: each runs as a task of the event loop, for which its event waits."""

from __future__ import annotations

import asyncio
import copy
import inspect
from ctypes import byref, c_void_p
from typing import Any, Callable, Coroutine, Dict, Optional, Set, Union

from .. import _raw
from .._calls.encoding import Codec
from .._calls.side import side_flags
from .._handles import context
from .._handles.errors import AlreadyError, GoneError, StateError, check
from .._handles.metadata import Metadata
from .._handles.objects import own
from .._handles.reports import tell
from .._handles.status import Status, StatusCode
from .._handles.verdict import Verdict
from .._interceptors.connection import ConnectionEvent
from .._interceptors.hop import Hop, Instance
from .._interceptors.ticket import Ticket
from .._interceptors.trampolines import SIGNALS, verdict_of, words
from .._raw import constants as c
from .driver import Group
from .loops import Task, cancellations, running_loop
from .side_channel import SideChannel

Callback = Callable[[Any], Any]
# The state of a hop whose async `create` has returned SKIP.
_SKIPPED = object()


class _LoopHop(Hop):
    """What the hops of `async def` callbacks have in common."""

    __slots__ = ("_group",)
    _group: Group

    def side_channel(  # type: ignore[override]
        self, *, from_top: bool = False, detached: bool = False, codec: Optional[Codec] = None
    ) -> SideChannel:
        """As `Hop.side_channel`, but its calls run on the event loop."""
        return SideChannel(self._group, self.retain(), side_flags(from_top, detached), codec)


class AsyncHop(_LoopHop):
    """The hop that an `async def` callback gets. It is the callback's own until the coroutine ends: the event waits
    for it, and can be read and changed."""

    __slots__ = ("call", "number")

    def __init__(self, group: Group, hop: Hop, ticket: Ticket) -> None:
        bound = c_void_p()
        check(_raw.penstock_ticket_hop(ticket.number, byref(bound)), "the event does not wait")
        assert bound.value is not None
        super().__init__(own(self, _raw.penstock_hop_release, bound.value), hop._seen_by)
        # Only the callback's own hop tells it.
        self.call = context.given(hop._handle)
        self._group = group
        self.number = ticket.number
        self._retained = True

    def ticket(self) -> Ticket:
        """The ticket for which the event waits. The callback itself uses it, when its coroutine has ended."""
        return Ticket(self.number)


class SeenHop(_LoopHop):
    """The hop that an `async def` callback gets for an event that does not wait: a signal, `destroy`, or the status
    of a local cancel or deadline. It has a copy of the event, which can't be changed."""

    __slots__ = ("_event", "_seen_count", "_seen_status")

    def __init__(self, group: Group, hop: Hop, callback: str) -> None:
        super().__init__(hop._handle, hop._seen_by)
        self._group = group
        self.retain()
        self._event = hop.event
        self._seen_count = hop.count if callback in ("on_demand", "on_sent") else 0
        self._seen_status = copy.copy(hop.status) if callback in ("on_status", "on_cancel") else None

    @property
    def status(self) -> Status:
        """A copy of the status, in `on_status` and `on_cancel`."""
        if self._seen_status is None:
            raise StateError(c.E_STATE, f"there is no status in {self._event.name}")
        return self._seen_status

    @property
    def metadata(self) -> Metadata:
        """A copy of the trailers, in `on_status` and `on_cancel`."""
        return self.status.trailers

    @property
    def count(self) -> int:
        """The count, in `on_demand` and `on_sent`."""
        return self._seen_count

    @count.setter
    def count(self, n: int) -> None:
        raise StateError(c.E_STATE, "an async callback comes too late to change the count")


class LoopTasks:
    """Runs the `async def` callbacks of the interceptors of one channel, and keeps their tasks until they end."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._running: Set[Task] = set()

    def callbacks(self, name: str, methods: Dict[str, Callback]) -> Dict[str, Callback]:
        """The callbacks ``methods`` of the interceptor ``name``, with functions for C in place of those that are
        async."""
        found = dict(methods)
        for callback, method in methods.items():
            if inspect.iscoroutinefunction(method):
                observes = callback in (*SIGNALS, "destroy", "on_connection")
                run = self._observing if observes else self._waiting
                found[callback] = run(name, callback, method)
        if inspect.iscoroutinefunction(methods.get("create")):
            found.pop("create")
            found["on_start"] = self._waiting(name, "on_start", _creating(methods["create"], methods.get("on_start")))
            for callback in found.keys() - {"on_start", "on_connection"}:
                found[callback] = _unless_skipped(found[callback])
        found["destroy"] = _ending(found.get("destroy"))
        return found

    def _waiting(self, name: str, callback: str, method: Callback) -> Callback:
        """The function for a callback whose event waits for the coroutine."""
        see = self._observing(name, callback, method)

        def run(hop: Hop) -> Optional[Verdict]:
            if not self._can_run():
                return None
            try:
                ticket = hop.ticket()
            except StateError:
                # The status of a local cancel or deadline, which nothing can hold up.
                see(hop)
                return None
            shown = AsyncHop(self._group, hop, ticket)
            instance = hop._seen_by
            assert isinstance(instance, Instance)
            task = self._begin(_decide(name, callback, method, shown, ticket))
            instance.tasks.add(task)

            def ended(task: Task) -> None:
                instance.tasks.discard(task)
                # `destroy` cancels the task of a call that has ended. Otherwise the program has done so, perhaps
                # before the task's first step.
                if task.cancelled():
                    _end(name, callback, shown, ticket, asyncio.CancelledError())

            task.add_done_callback(ended)
            return Verdict.PAUSE

        return run

    def _observing(self, name: str, callback: str, method: Callback) -> Callback:
        """The function for a callback for which nothing waits."""

        def run(seen: Union[Hop, ConnectionEvent]) -> None:
            if self._can_run():
                shown = SeenHop(self._group, seen, callback) if isinstance(seen, Hop) else seen
                self._begin(_observe(name, callback, method, shown))

        return run

    def _can_run(self) -> bool:
        """Whether the event loop can run a task. Not once it is closed, when the calls on it end."""
        if not self._group.driver.is_open:
            return False
        try:
            here = running_loop() is self._group.loop
        except RuntimeError:
            here = False
        if not here:
            raise RuntimeError("an async callback was called on another thread than that of its event loop")
        return True

    def _begin(self, work: Coroutine[Any, Any, None]) -> Task:
        # The present context is the callback's own copy of the call's context, and the task copies it.
        task: Task = self._group.loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


async def _decide(name: str, callback: str, method: Callback, hop: AsyncHop, ticket: Ticket) -> None:
    """Runs a callback, and ends the wait of its event as it says."""
    try:
        verdict = verdict_of(await method(hop), callback)
        try:
            ticket.resolve(Verdict(verdict))
        except (AlreadyError, GoneError):
            # The callback has used the ticket or ended the call, or the call has ended.
            return
        if verdict == c.TAKE:
            hop.retain()
    except cancellations():
        raise
    except BaseException as error:
        _end(name, callback, hop, ticket, error)
        tell(name, callback, error)
        if not isinstance(error, Exception):
            raise
    finally:
        hop._end()


def _end(name: str, callback: str, hop: AsyncHop, ticket: Ticket, error: BaseException) -> None:
    """Ends the call with a status that names the exception, which its caller gets as the cause."""
    message = words(name, callback, error).encode()
    result = _raw.penstock_ticket_end(ticket.number, StatusCode.INTERNAL.number, message)
    # Otherwise something else has ended the call before.
    if result == c.OK and hop.call is not None and hop.call.raised is None:
        hop.call.raised = error


async def _observe(name: str, callback: str, method: Callback, shown: Any) -> None:
    try:
        await method(shown)
    except Exception as error:
        tell(name, callback, error)
    finally:
        if isinstance(shown, Hop):
            shown._end()


def _creating(create: Callback, on_start: Optional[Callback]) -> Callback:
    """The `on_start` of an interceptor whose `create` is async, so that it has to wait there."""

    async def run(hop: Hop) -> Any:
        made = await create(hop)
        if made is Verdict.SKIP:
            hop.state = _SKIPPED
            return None
        hop.state = made
        if on_start is None:
            return None
        returned = on_start(hop)
        return await returned if inspect.isawaitable(returned) else returned

    return run


def _unless_skipped(callback: Callback) -> Callback:
    return lambda hop: None if hop.state is _SKIPPED else callback(hop)


def _ending(destroy: Optional[Callback]) -> Callback:
    """The `destroy` of an interceptor with async callbacks: cancels those that still run, because the call has
    ended and nothing waits for them any more."""

    def run(hop: Hop) -> None:
        instance = hop._seen_by
        assert isinstance(instance, Instance)
        for task in list(instance.tasks):
            task.cancel()
        if destroy is not None:
            destroy(hop)

    return run
