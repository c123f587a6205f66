"""The state of a channel: subscriptions, and the future of a channel that gets ready."""

from __future__ import annotations

import functools
import logging
import threading
from types import TracebackType
from typing import Any, Callable, List, Optional

from .._channels import channel as core
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

    def changed(self, state: Connectivity) -> bool:
        """Called by the library with each new state."""
        if state is not Connectivity.SHUTDOWN and not self.is_over:
            self._callbacks.add(functools.partial(self._tell, state_of(int(state))))
        return not self.is_over

    def _tell(self, state: ChannelConnectivity) -> None:
        if not self.is_over:
            self.function(state)


class Subscriptions:
    """The functions that a channel tells of its states."""

    def __init__(self, channel: core.Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._all: List[_Subscription] = []

    def add(self, function: Function, try_to_connect: Optional[bool]) -> None:
        subscription = _Subscription(function, self._channel)
        self._channel._callbacks.expect()
        try:
            self._channel.watch_connectivity(subscription.changed)
            if try_to_connect:
                self._channel.connect()
        except ClosedError:
            # grpcio takes the function, and never calls it.
            return
        with self._lock:
            self._all.append(subscription)

    def remove(self, function: Function) -> None:
        """Ends the first subscription of ``function``, if there is one."""
        with self._lock:
            found = next((one for one in self._all if one.function == function), None)
            if found is not None:
                self._all.remove(found)
                found.is_over = True

    def remove_all(self) -> None:
        with self._lock:
            for one in self._all:
                one.is_over = True
            self._all.clear()


class _ReadyFuture(Future):
    """Ends when its channel is ready."""

    def __init__(self, channel: Channel) -> None:
        self._condition = threading.Condition()
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
        with self._condition:
            if self._is_ready or self._is_cancelled:
                return False
            self._is_ready, self._is_cancelled = not cancel, cancel
            functions, self._functions = self._functions, []
            self._condition.notify_all()
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
        with self._condition:
            if not self._condition.wait_for(self.done, timeout):
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
        with self._condition:
            if not self.done():
                self._functions.append(fn)
                return
        fn(self)


def channel_ready_future(channel: Channel) -> Future:
    """A future that ends when ``channel`` is ready; it makes the channel connect."""
    future = _ReadyFuture(channel)
    future._begin()
    return future
