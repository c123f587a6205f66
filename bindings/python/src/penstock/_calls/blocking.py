"""The steps of a call that wait: on a thread, which then drives the runtime's loop, or in a greenlet."""

from __future__ import annotations

import logging
import time
from ctypes import byref, c_void_p
from typing import Any, Callable, List, Optional

from .. import _raw
from .._handles import host
from .._handles.arguments import milliseconds
from .._handles.errors import check, check_with
from .._handles.metadata import ReceivedMetadata
from .._handles.objects import own
from .._handles.reply import RpcError
from .._handles.verdict import Kind
from .._raw import constants as c
from . import green
from .codec import fill
from .line import Line
from .messages import Data, Sent, taken
from .options import CallOptions
from .requests import Requests
from .steps import check_size, replied, sent
from .wait import Waiters, is_worker

_logger = logging.getLogger("penstock")


def unary(waiters: Waiters, channel: int, method: bytes, options: CallOptions, data: bytes) -> int:
    """Makes a whole unary call in a single C function, and returns a ``penstock_reply *``, which the caller releases.

    Each C function gives up the GIL and takes it back. If many threads make calls, a thread has to wait for the GIL
    then, which takes two context switches."""
    reply, error = c_void_p(), c_void_p()
    try:
        result = waiters.once(
            _raw.penstock_channel_unary, channel, method, data, len(data), options.handle, byref(reply), byref(error)
        )
        check_size(result, len(data))
        check_with(result, error)
    except BaseException:
        _raw.penstock_reply_release(reply)
        _raw.penstock_error_release(error)
        raise
    assert reply.value is not None
    return reply.value


def begin(waiters: Waiters, kind: Kind, make: Callable[..., int], *arguments: Any) -> Line:
    """Makes a call by the C function ``make(*arguments, callbacks, &call, &error)``, for the code that waits here.
    The caller releases the line's handle."""
    # A thread that runs a synchronous interceptor also runs those of the calls that it waits for.
    if host.hub() is not None and not is_worker():
        return green.begin(kind, make, *arguments)
    call, error = c_void_p(), c_void_p()
    check_with(make(*arguments, None, byref(call), byref(error)), error)
    assert call.value is not None
    return ThreadLine(call.value, waiters)


class ThreadLine:
    """See `Line`. The thread that waits drives the runtime's loop."""

    __slots__ = ("_kept", "_waiters", "handle")

    def __init__(self, handle: int, waiters: Waiters) -> None:
        self.handle = handle
        self._waiters = waiters
        # Messages that have come as an exception ended the wait for them.
        self._kept: List[Data] = []

    def with_handle(self, handle: int) -> ThreadLine:
        return ThreadLine(handle, self._waiters)

    def send(self, data: Sent) -> bool:
        if isinstance(data, bytes):
            return sent(self._waiters.wait(_raw.penstock_call_send, self.handle, data, len(data)), len(data))
        message = c_void_p()
        try:
            length = fill(message, data)
            return sent(self._waiters.wait(_raw.penstock_call_send_message, self.handle, message), length)
        finally:
            _raw.penstock_message_release(message)

    def receive(self) -> Optional[Data]:
        if self._kept:
            return self._kept.pop(0)
        message = c_void_p()
        try:
            result = self._waiters.wait(_raw.penstock_call_receive, self.handle, byref(message))
            if result == c.OK:
                return taken(message)
        except BaseException:
            # If a Ctrl-C came after a message had been received, the message is kept for the next time.
            if message.value is not None:
                self._kept.append(taken(message))
            raise
        if result != c.E_END:
            check(result, "no message can be received")
        return None

    def headers(self, owner: object) -> Optional[ReceivedMetadata]:
        headers = c_void_p()
        result = self._waiters.wait(_raw.penstock_call_wait_headers, self.handle, byref(headers))
        if result == c.E_END:
            return None
        check(result, "no headers can be waited for")
        return ReceivedMetadata._of(headers.value, owner, self.handle)

    def status(self, timeout: Optional[float] = None) -> int:
        if timeout is None:
            return replied(self._waiters.wait, _raw.penstock_call_wait_status, self.handle)
        until = time.monotonic() + timeout

        def wait(call: int, reply: object) -> int:
            left = milliseconds(max(until - time.monotonic(), 0))
            return int(_raw.penstock_call_wait_status_for(call, left, reply))

        return replied(self._waiters.wait, wait, self.handle)

    def finish(self) -> int:
        return replied(self._waiters.wait, _raw.penstock_call_wait, self.handle)

    def cancel(self, reason: bytes) -> None:
        _raw.penstock_call_cancel(self.handle, reason)
        self._kept.clear()


# ---- Requests ----


class _KeptCall:
    """A reference to a call, for the code that sends its requests. The reference is released when this object is
    collected: so exactly once, even if a Ctrl-C makes it uncertain whether the thread has started."""

    __slots__ = ("__weakref__", "line")

    def __init__(self, line: Line) -> None:
        handle = own(self, _raw.penstock_call_release, _raw.penstock_call_retain(line.handle))
        self.line = line.with_handle(handle)


def _send_all(line: Line, requests: Requests, first: Optional[Sent]) -> None:
    """Sends ``first`` and the remaining requests, waiting for room, and half-closes. If a request can't be read,
    serialized or sent, cancels the call instead."""
    try:
        if first is not None and not line.send(first):
            return
        if not all(line.send(data) for data in requests):
            return
    except RpcError as error:
        requests.failure = error
    requests.end(line.handle)


def _send_beside(line: Line, requests: Requests, first: Optional[Sent]) -> None:
    """Runs `_send_all` on a daemon thread, or in a greenlet."""
    kept = _KeptCall(line)

    def run() -> None:
        try:
            _send_all(kept.line, requests, first)
        except BaseException as error:
            # For example, the iterator has raised SystemExit, which `_send_all` does not handle. Only this code
            # ends the call then.
            requests.log(_logger.error, "the requests can't be sent", error)
            requests.fail(error)
            requests.end(kept.line.handle)

    host.spawn(run, "penstock requests")


def begin_sending(line: Line, requests: Requests) -> None:
    """Sends the requests of a list or tuple as long as there is room, and starts a thread for those that remain. All
    other iterables are read on that thread."""
    done, first = requests.send_ready(line.handle) if requests.is_ready else (False, None)
    if not done:
        # The call may have ended already: then the promise matters no more.
        _raw.penstock_call_promise_half_close(line.handle)
        _send_beside(line, requests, first)
