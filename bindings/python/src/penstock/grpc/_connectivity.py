"""The state of a channel: subscriptions, and the future of a channel that gets ready."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from types import TracebackType
from typing import Any, Callable, List, Optional

from .._channels import channel as core
from .._handles import host
from .._handles.errors import ClosedError
from .._handles.verdict import Connectivity
from ._names import Channel, ChannelConnectivity, Future, FutureCancelledError, FutureTimeoutError, state_of

_logger = logging.getLogger("penstock")

Function = Callable[[ChannelConnectivity], Any]


class _Subscription:
    """One function that is told of the states of a channel, on the channel's thread for callbacks."""

    def __init__(self, function: Function, channel: core.Channel) -> None:
        self.function = function
        self._callbacks = channel._callbacks
        self.is_over = False

    def changed(self, state: Connectivity) -> None:
        """Does not wait."""
        self._callbacks.add(functools.partial(self._tell, state_of(int(state))))

    def _tell(self, state: ChannelConnectivity) -> None:
        if not self.is_over:
            self.function(state)


class Subscriptions:
    """The functions that a channel tells of its states. All have one watch, which is over when the state changes and
    nobody is to be told."""

    def __init__(self, channel: core.Channel) -> None:
        self._channel = channel
        # Orders the states that a function is told. May be taken again by a signal handler or a destructor.
        self._lock = threading.RLock()
        self._all: List[_Subscription] = []
        self._is_watched = False
        # The latest state that the watch has told.
        self._state: Optional[Connectivity] = None

    def add(self, function: Function, try_to_connect: Optional[bool]) -> None:
        subscription = _Subscription(function, self._channel)
        self._channel._callbacks.expect()
        try:
            with self._lock:
                if not self._is_watched:
                    self._watch()
                elif self._state is not None:
                    subscription.changed(self._state)
                self._all.append(subscription)
            if try_to_connect:
                self._channel.connect()
        except ClosedError:
            # grpcio takes the function, and never calls it.
            return

    def _watch(self) -> None:
        self._is_watched, self._state = True, None
        try:
            self._channel.watch_connectivity(self._changed)
        except BaseException:
            self._is_watched = False
            raise

    def _changed(self, state: Connectivity) -> bool:
        """Called by the library with each new state."""
        with self._lock:
            self._state = state
            self._is_watched = bool(self._all) and state is not Connectivity.SHUTDOWN
            if self._is_watched:
                for one in self._all:
                    one.changed(state)
            return self._is_watched

    def remove(self, function: Function) -> None:
        """Ends the first subscription of ``function``, if there is one."""
        found = next((one for one in list(self._all) if one.function == function), None)
        if found is not None:
            found.is_over = True
            with contextlib.suppress(ValueError):
                self._all.remove(found)

    def remove_all(self) -> None:
        while self._all:
            with contextlib.suppress(IndexError):
                self._all.pop().is_over = True


class _ReadyFuture(Future):
    """Ends when its channel is ready."""

    def __init__(self, channel: Channel) -> None:
        self._lock = threading.RLock()
        # Of the code that waits.
        self._gates = host.Gates()
        self._channel = channel
        self._is_ready = False
        self._is_cancelled = False
        self._functions: List[Callable[[Any], Any]] = []

    def _begin(self) -> None:
        self._channel.subscribe(self._changed, try_to_connect=True)

    def _changed(self, state: ChannelConnectivity) -> None:
        if state is ChannelConnectivity.READY:
            self._end(cancel=False)

    def _end(self, cancel: bool) -> bool:
        with self._lock:
            if self._is_ready or self._is_cancelled:
                return False
            self._is_ready, self._is_cancelled = not cancel, cancel
            functions, self._functions = self._functions, []
        self._gates.open()
        self._channel.unsubscribe(self._changed)
        for function in functions:
            try:
                function(self)
            except Exception:
                _logger.exception("a callback of a channel_ready_future raised")
        return True

    def cancel(self) -> bool:
        """Ends the wait. False: the channel is ready, or the wait has ended."""
        return self._end(cancel=True) or self._is_cancelled

    def cancelled(self) -> bool:
        """Whether `cancel` has ended the wait."""
        return self._is_cancelled

    def running(self) -> bool:
        """Whether the wait goes on."""
        return not self.done()

    def done(self) -> bool:
        """Whether the channel is ready, or the wait has been cancelled."""
        return self._is_ready or self._is_cancelled

    def result(self, timeout: Optional[float] = None) -> None:
        """Waits until the channel is ready. FutureTimeoutError: it is not, within ``timeout`` seconds.
        FutureCancelledError: the wait was cancelled."""
        if not self._gates.wait(lambda: self.done() or None, timeout):
            raise FutureTimeoutError()
        if self._is_cancelled:
            raise FutureCancelledError()

    def exception(self, timeout: Optional[float] = None) -> None:
        """As `result`."""
        self.result(timeout)

    def traceback(self, timeout: Optional[float] = None) -> Optional[TracebackType]:
        """As `result`."""
        self.result(timeout)
        return None

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Calls ``fn`` with this future when the wait has ended; at once if it has ended already."""
        with self._lock:
            if not self.done():
                self._functions.append(fn)
                return
        fn(self)


def channel_ready_future(channel: Channel) -> Future:
    """A future that ends when ``channel`` is ready; it makes the channel connect."""
    future = _ReadyFuture(channel)
    future._begin()
    return future
