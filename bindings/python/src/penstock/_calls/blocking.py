"""The steps of a call that wait: on a thread, which then drives the runtime's loop, or in a greenlet."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from ctypes import byref, c_void_p
from functools import partial
from typing import Any, Callable, Deque, Optional, Sequence

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
from .batch import ALONE, borrowed_room, give_back, is_plain, send_many, size_of
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

    __slots__ = ("__weakref__", "_is_cancelled", "_lock", "_process", "_waiters", "handle", "kept")

    def __init__(self, handle: int, waiters: Waiters) -> None:
        self.handle = handle
        self._waiters = waiters
        self._process = os.getpid()
        # Messages that have crossed from the library with others, or before an exception ended the wait for them.
        self.kept: Deque[Data] = deque()
        # One thread at a time waits for messages: otherwise a second one could read what comes after those of the
        # first before them. A callback in the wait may come here again, and learns that it must not wait.
        self._lock = threading.RLock()
        self._is_cancelled = False

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

    def send_all(self, batch: Sequence[Sent]) -> bool:
        while is_plain(batch):
            result, done = send_many(partial(self._waiters.once, _raw.penstock_call_send_many), self.handle, batch)
            batch = batch[done:]
            if result not in (c.OK, c.E_INTERRUPTED) and not sent(result, size_of(batch[0])):
                return False
        return all(self.send(data) for data in batch)

    def receive(self) -> Optional[Data]:
        if self._process != os.getpid():
            # In a forked child the thread that held the lock does not exist.
            self._process, self._lock = os.getpid(), threading.RLock()
        with self._lock:
            # Nobody else adds messages meanwhile, but a cancel may take them away.
            found = self._taken()
            return self._received() if found is None else found

    def _taken(self) -> Optional[Data]:
        try:
            return self.kept.popleft()
        except IndexError:
            return None

    def _received(self) -> Optional[Data]:
        room = borrowed_room()
        try:
            result = self._waiters.wait(_raw.penstock_call_receive_many, self.handle, *room.arguments)
        finally:
            # A Ctrl-C may have come after messages had been received: they are kept for the next time.
            came = room.taken()
            give_back(room)
            if len(came) > 1:
                _keeping.add(self)
            self.kept.extend(came)
            if self._is_cancelled:
                self.kept.clear()
        if result == c.OK:
            # None: another thread has cancelled the call.
            return self._taken()
        if result in ALONE:
            return self._received_alone()
        if result != c.E_END:
            check(result, "no message can be received")
        return None

    def _received_alone(self) -> Optional[Data]:
        message = c_void_p()
        try:
            result = self._waiters.wait(_raw.penstock_call_receive, self.handle, byref(message))
            if result == c.OK:
                return taken(message)
        except BaseException:
            if message.value is not None:
                self.kept.append(taken(message))
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
        self._is_cancelled = True
        self.kept.clear()


# The calls that may have messages in `kept`.
_keeping: weakref.WeakSet[ThreadLine] = weakref.WeakSet()


def forget() -> None:
    """Called in a forked child in which the parent's handles do not work: the messages are the parent's."""
    for line in tuple(_keeping):
        line.kept.clear()


# ---- Requests ----


class _KeptCall:
    """A reference to a call, for the code that sends its requests. The reference is released when this object is
    collected: so exactly once, even if a Ctrl-C makes it uncertain whether the thread has started."""

    __slots__ = ("__weakref__", "line")

    def __init__(self, line: Line) -> None:
        handle = own(self, _raw.penstock_call_release, _raw.penstock_call_retain(line.handle))
        self.line = line.with_handle(handle)


def _send_all(line: Line, requests: Requests, first: Sequence[Sent]) -> None:
    """Sends ``first`` and the remaining requests, waiting for room, and half-closes. If a request can't be read,
    serialized or sent, cancels the call instead."""
    try:
        if not line.send_all(first):
            return
        if not all(line.send_all(batch) for batch in requests.batches()):
            return
    except RpcError as error:
        requests.failure = error
    requests.end(line.handle)


def _send_beside(line: Line, requests: Requests, first: Sequence[Sent]) -> None:
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
    first = requests.send_ready(line.handle) if requests.is_ready else ()
    if first is not None:
        # The call may have ended already: then the promise matters no more.
        _raw.penstock_call_promise_half_close(line.handle)
        _send_beside(line, requests, first)
