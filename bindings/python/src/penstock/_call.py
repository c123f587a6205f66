"""Calls: the code that the four kinds share, and the response iterator of streams."""

from __future__ import annotations

import collections
import ctypes
import functools
import json
import logging
import threading
import time
from contextvars import Context, copy_context
from ctypes import byref, c_size_t, c_void_p
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, Optional, Tuple, Union

from . import _constants as c
from . import _raw
from ._arguments import Uncompressed, payload
from ._codec import Boxed, Codec, boxed, fill
from ._context import CallContext
from ._errors import check, check_with
from ._keywords import FOREVER
from ._metadata import ReceivedMetadata, owned_text
from ._objects import Uncopied, own
from ._options import CallOptions
from ._reply import Outcome, Reply, RpcError, RunningValues, local_error, reply_error
from ._status import StatusCode
from ._wait import Waiters

_logger = logging.getLogger("penstock")

Serializer = Optional[Callable[[Any], bytes]]
Deserializer = Optional[Callable[[bytes], Any]]
# A message: bytes, or with a codec the caller's own object.
Data = Union[bytes, Boxed]
# A message to be sent; an Uncompressed has a message that is not to be compressed.
Sent = Union[Data, Uncompressed]


def serialize(
    serializer: Serializer, request: Any, codec: Optional[Codec] = None, context: Optional[Context] = None
) -> Sent:
    """The message to send for ``request``: its bytes, or, with ``codec``, the request as an object. The serializer
    runs in a copy of ``context``; None: of the present context. Raises RpcError INTERNAL, as grpcio does, if the
    serializer raises."""
    if isinstance(request, Uncompressed):
        return Uncompressed(serialize(serializer, request.message, codec, context))
    if codec is not None:
        return Boxed(request, codec)
    try:
        return payload(request if serializer is None else _copied(context).run(serializer, request))
    except Exception as error:
        raise local_error(StatusCode.INTERNAL, "Exception serializing request!", error) from error


def deserialize(deserializer: Deserializer, data: Data, context: Optional[Context] = None) -> Any:
    """The response for the caller: the object in ``data``, if a codec has made one, else the deserializer's result
    for the bytes. The deserializer runs in a copy of ``context``; None: of the present context. Raises RpcError
    INTERNAL, as grpcio does, if the deserializer raises."""
    if isinstance(data, Boxed):
        return data.thing
    try:
        return data if deserializer is None else _copied(context).run(deserializer, data)
    except Exception as error:
        raise local_error(StatusCode.INTERNAL, "Exception deserializing response!", error) from error


def _copied(context: Optional[Context]) -> Context:
    return copy_context() if context is None else context.copy()


def start(channel: int, method: bytes, kind: int, options: CallOptions) -> int:
    """Makes a ``penstock_call *`` in blocking style, which the caller releases."""
    call, error = c_void_p(), c_void_p()
    result = _raw.penstock_channel_call(channel, method, kind, options.handle, None, byref(call), byref(error))
    check_with(result, error)
    assert call.value is not None
    return call.value


def send(waiters: Waiters, call: int, data: Sent) -> bool:
    """Sends a message, and waits until there is room for it. Returns False if the call has ended. Raises RpcError if
    the message is over the limit."""
    if isinstance(data, bytes):
        return _sent(waiters.wait(_raw.penstock_call_send, call, data, len(data)), len(data))
    message = c_void_p()
    try:
        length = fill(message, data)
        return _sent(waiters.wait(_raw.penstock_call_send_message, call, message), length)
    finally:
        _raw.penstock_message_release(message)


def _sent(result: int, length: int) -> bool:
    if result == c.E_GONE:
        return False
    _check_size(result, length)
    check(result, "the message can't be sent")
    return True


def _check_size(result: int, length: int) -> None:
    if result == c.E_TOO_LARGE:
        text = f"the message to be sent is larger than the limit ({length} bytes)"
        raise local_error(StatusCode.RESOURCE_EXHAUSTED, text)


def unary(waiters: Waiters, channel: int, method: bytes, options: CallOptions, data: bytes) -> int:
    """Makes a whole unary call in a single C function, and returns a ``penstock_reply *``, which the caller releases.

    Each C function gives up the GIL and takes it back. If many threads make calls, a thread has to wait for the GIL
    then, which takes two context switches."""
    reply, error = c_void_p(), c_void_p()
    try:
        result = waiters.once(
            _raw.penstock_channel_unary, channel, method, data, len(data), options.handle, byref(reply), byref(error)
        )
        _check_size(result, len(data))
        check_with(result, error)
    except BaseException:
        _raw.penstock_reply_release(reply)
        _raw.penstock_error_release(error)
        raise
    assert reply.value is not None
    return reply.value


def half_close(call: int) -> None:
    """Half-closes the call. Does nothing if the call has ended or is half-closed already."""
    result = _raw.penstock_call_half_close(call)
    if result not in (c.E_GONE, c.E_ALREADY):
        check(result)


def finish(waiters: Waiters, call: int) -> int:
    """Waits for the call's end, and returns a ``penstock_reply *``, which the caller releases. Unread responses are
    discarded."""
    return _ended(waiters, _raw.penstock_call_wait, call)


def _ended(waiters: Waiters, wait: Callable[..., int], call: int) -> int:
    reply = c_void_p()
    try:
        check(waiters.wait(wait, call, byref(reply)), "the call can't be waited for")
    except BaseException:
        _raw.penstock_reply_release(reply)
        raise
    assert reply.value is not None
    return reply.value


def abandon(call: int, reason: bytes) -> None:
    """Cancels a call that no thread waits for any more, and releases it."""
    _raw.penstock_call_cancel(call, reason)
    _raw.penstock_call_release(call)


def body(reply: int) -> Data:
    """The response message in a ``penstock_reply *``; ``b""`` if there is none."""
    item = boxed(_raw.penstock_message_object(_raw.penstock_reply_response(reply))) if Boxed.ever else None
    if item is not None:
        return item
    length = c_size_t()
    data = _raw.penstock_reply_message(reply, byref(length))
    return ctypes.string_at(data, length.value) if data else b""


def _taken(message: c_void_p) -> Data:
    """The bytes or the object of a ``penstock_message *``, which is released; ``message`` is null afterwards."""
    data: Data
    try:
        item = boxed(_raw.penstock_message_object(message)) if Boxed.ever else None
        if item is None:
            length = c_size_t()
            data = ctypes.string_at(_raw.penstock_message_bytes(message, byref(length)), length.value)
        else:
            data = item
    finally:
        # The handle is set to null first, so that a Ctrl-C during the release does not lead to a second release.
        handle, message.value = message.value, None
        _raw.penstock_message_release(handle)
    return data


def _tried(call: int, data: Sent) -> Tuple[int, int]:
    """Sends a message if there is room, without waiting. Returns the ``penstock_result`` and the size of the message
    in bytes."""
    if isinstance(data, bytes):
        return int(_raw.penstock_call_try_send(call, data, len(data))), len(data)
    message = c_void_p()
    try:
        length = fill(message, data)
        return int(_raw.penstock_call_try_send_message(call, message)), length
    finally:
        _raw.penstock_message_release(message)


class _KeptCall:
    """A reference to a call, for the thread that sends its requests. The reference is released when this object is
    collected: so exactly once, even if a Ctrl-C makes it uncertain whether the thread has started."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self, call: int) -> None:
        self.handle: int = own(self, _raw.penstock_call_release, _raw.penstock_call_retain(call))


class Requests:
    """The requests of a call that may have several, and the failure if reading or serializing one has raised. The
    iterator has one copy of the call's context for its whole run."""

    def __init__(
        self, iterator: Iterable[Any], serializer: Serializer, codec: Optional[Codec], context: Context
    ) -> None:
        # Reading a list or a tuple runs no code of the program.
        self._within = None if type(iterator) in (list, tuple) else context.copy()
        self._iterator: Iterator[Any] = (
            iter(iterator) if self._within is None else self._within.run(lambda: iter(iterator))
        )
        # A list or tuple is in memory already, so reading it never waits.
        self.is_ready = isinstance(iterator, (list, tuple))
        self._serializer = serializer
        self._context = context
        self._codec = codec
        self.failure: Optional[RpcError] = None

    def __iter__(self) -> Iterator[Sent]:
        """Yields the messages to send. If the iterator or the serializer raises, this sets `failure` and ends."""
        while True:
            try:
                within = self._within
                request = next(self._iterator) if within is None else within.run(next, self._iterator)
            except StopIteration:
                return
            except Exception as error:
                self._log(_logger.debug, "the request iterator raised", error)
                self._fail(error)
                return
            try:
                yield serialize(self._serializer, request, self._codec, self._context)
            except RpcError as error:
                self.failure = error
                return

    def _log(self, log: Callable[..., None], text: str, error: BaseException) -> None:
        self._context.copy().run(functools.partial(log, text, exc_info=error))

    def _fail(self, error: BaseException) -> None:
        self.failure = local_error(StatusCode.UNKNOWN, "Exception iterating requests!", error)

    def send_all(self, waiters: Waiters, call: int, first: Optional[Sent] = None) -> None:
        """Sends ``first`` and the remaining requests, waiting for room, and half-closes. If a request can't be read,
        serialized or sent, cancels the call instead."""
        try:
            if first is not None and not send(waiters, call, first):
                return
            if not all(send(waiters, call, data) for data in self):
                return
        except RpcError as error:
            self.failure = error
        self._end(call)

    def send_ready(self, call: int) -> Tuple[bool, Optional[Sent]]:
        """Sends requests as long as there is room, and half-closes after the last. Returns (True, None) if nothing is
        left to send, or if the call has ended or a request has failed; otherwise False and the request that had no
        room."""
        try:
            for data in self:
                result, length = _tried(call, data)
                if result == c.E_WOULD_BLOCK:
                    return False, data
                if not _sent(result, length):
                    return True, None
        except RpcError as error:
            self.failure = error
        self._end(call)
        return True, None

    def _end(self, call: int) -> None:
        if self.failure is None:
            half_close(call)
        else:
            _raw.penstock_call_cancel(call, self.failure.details().encode())

    def send_on_thread(self, waiters: Waiters, call: int, first: Optional[Sent]) -> None:
        """Runs `send_all` on a daemon thread."""
        kept = _KeptCall(call)

        def run() -> None:
            try:
                self.send_all(waiters, kept.handle, first)
            except BaseException as error:
                # For example, the iterator has raised SystemExit, which `send_all` does not handle. Only this code
                # ends the call then.
                self._log(_logger.error, "the requests can't be sent", error)
                self._fail(error)
                self._end(kept.handle)

        threading.Thread(target=run, name="penstock requests", daemon=True).start()


class Call(Uncopied, Outcome):
    """A running call with a stream of responses: iterate over it.

    A call object that is dropped cancels its call, unless the call has ended. The iteration raises an end other than
    OK as `RpcError`, after the last message.

    The methods that tell how the call ended (`code`, `details`, `trailing_metadata`, `stats` and so on) wait for the
    end and read no messages, as in grpcio. The status comes after the messages: if some are unread, the wait ends
    when another thread has read them, at the deadline, or when the call is cancelled. Iterate first, or set a
    ``timeout``.
    """

    _reply: Optional[Reply] = None

    def __init__(
        self,
        call: int,
        requests: Optional[Requests],
        deserializer: Deserializer,
        timeout: Optional[float],
        waiters: Waiters,
        keeper: object,
        context: Context,
        lent: Optional[CallContext],
    ) -> None:
        # The context in which the deserializer runs; None once all responses have been read.
        self._context: Optional[Context] = context
        self._lent = lent
        self._call: int = own(self, _abandon_dropped, call)
        self._waiters = waiters
        self._requests = requests
        self._deserializer = deserializer
        self._until = None if timeout is None or timeout > FOREVER else time.monotonic() + max(timeout, 0)
        self._keeper = keeper
        self._unread: Deque[Data] = collections.deque()
        self._is_read = False
        self._failure: Optional[RpcError] = None

    def __del__(self) -> None:
        # The finalizer of `_call`, which ends the call, runs after this.
        if self._lent is not None:
            self._lent.keep()

    # ---- Responses ----

    def __iter__(self) -> Call:
        return self

    def __next__(self) -> Any:
        data = self._unread.popleft() if self._unread else self._receive()
        if data is None:
            error = self._error()
            raise error if error is not None else StopIteration
        try:
            return deserialize(self._deserializer, data, self._context)
        except RpcError as error:
            self._failure = error
            _raw.penstock_call_cancel(self._call, b"Exception deserializing response!")
            raise

    def _receive(self) -> Optional[Data]:
        """Waits for the next message, and returns it. None: all messages have been taken, and `_reply` is set.
        (`_reply` may also be set while messages are left.)"""
        if self._is_read:
            return None
        message = c_void_p()
        try:
            result = self._waiters.wait(_raw.penstock_call_receive, self._call, byref(message))
            if result == c.OK:
                return _taken(message)
        except BaseException:
            # If a Ctrl-C came after a message had been received, the message is kept for the next iteration.
            if message.value is not None:
                self._unread.append(_taken(message))
            raise
        if result != c.E_END:
            check(result, "no message can be received")
        self._settled()
        self._forget()
        return None

    def _forget(self) -> Optional[Context]:
        """Called when all responses have been taken, and `_reply` is set: forgets what only a running call needs.
        Returns the context for a response that is still to be deserialized."""
        self._error()
        if self._lent is not None:
            # The registry has it until the last callback has returned, and no longer.
            self._lent.keep()
            self._lent = None
        context, self._context, self._requests, self._is_read = self._context, None, None, True
        return context

    def _settled(self) -> Reply:
        """Waits for the status, and returns the reply. It reads no messages, so flow control still holds the server
        back."""
        if self._reply is None:
            reply = Reply(_ended(self._waiters, _raw.penstock_call_wait_status, self._call))
            self._code, self._details = reply.code, reply.details
            self._reply = reply
        return self._reply

    def _error(self) -> Optional[RpcError]:
        """The exception that tells how the call ended; None if it ended with OK. Must be called only once `_reply` is
        set."""
        if self._failure is None and self._requests is not None:
            self._failure = self._requests.failure
        if self._failure is not None:
            return self._failure
        assert self._reply is not None
        return None if self._code is StatusCode.OK else reply_error(self._reply)

    def result(self) -> Any:
        """Waits for the end and returns the one response, or raises the call's failure."""
        try:
            reply = self._settled()
        except BaseException:
            self.cancel()
            raise
        context = self._forget()
        error = self._error()
        if error is not None:
            raise error
        return deserialize(self._deserializer, body(reply._handle), context)

    # ---- grpc.Call ----

    def cancel(self) -> bool:
        """Ends the call with CANCELLED; unread messages are discarded. False: the call had ended before."""
        active = self.is_active()
        _raw.penstock_call_cancel(self._call, b"Locally cancelled by application!")
        self._unread.clear()
        return active

    def is_active(self) -> bool:
        """Whether the call has not ended yet. Does not wait."""
        if self._reply is not None:
            return False
        reply = c_void_p()
        result = _raw.penstock_call_reply(self._call, byref(reply))
        if result == c.E_WOULD_BLOCK:
            return True
        check(result)
        _raw.penstock_reply_release(reply)
        return False

    def add_callback(self, callback: Callable[[], Any]) -> bool:
        """Returns False if the call has ended: then ``callback`` is never called. For a running call this is not
        supported yet: NotImplementedError."""
        if self.is_active():
            raise NotImplementedError("a running call can't tell yet when it ends; wait for its code() on a thread")
        return False

    def time_remaining(self) -> Optional[float]:
        """The seconds until the deadline, at least 0; None without a deadline."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    @property
    def call_id(self) -> int:
        """The number of the call, unique within the process; `Hop.call_id` gives the same number."""
        return int(_raw.penstock_call_id(self._call))

    @property
    def values(self) -> RunningValues:
        """The values that the call's hops and its caller have shared so far; a value that is set here is shared with
        the hops. Does not wait."""
        return RunningValues(self._call, self)

    @property
    def trace(self) -> Dict[str, Any]:
        """The events at each hop (with the option ``trace`` of the channel or the call), and ``holder``, which says
        what the call waits for now. Does not wait for the end."""
        trace: Dict[str, Any] = json.loads(owned_text(_raw.penstock_call_trace_json, self._call))
        return trace

    def initial_metadata(self) -> ReceivedMetadata:
        """Waits for the response headers; empty if the call ends without them. If an interceptor may send the call
        again, they come only with the first message or the end (``headers_wait`` of `Interceptor`)."""
        if self._reply is not None:
            return self._reply.headers()
        headers = c_void_p()
        result = self._waiters.wait(_raw.penstock_call_wait_headers, self._call, byref(headers))
        if result == c.E_END:
            return self._settled().headers()
        check(result, "no headers can be waited for")
        return ReceivedMetadata._of(headers.value, self, self._call)

    def code(self) -> StatusCode:
        """The status code. Waits for the end, see `Call`."""
        self._settled()
        error = self._error()
        return self._code if error is None else error.code()

    def details(self) -> str:
        """The status message. Waits for the end, see `Call`."""
        self._settled()
        error = self._error()
        return self._details if error is None else error.details()

    def __repr__(self) -> str:
        return f"<penstock.Call {self.call_id}, {'running' if self._reply is None else self._code.name}>"


def _abandon_dropped(call: int) -> None:
    abandon(call, b"the call object was dropped")


def begin_sending(waiters: Waiters, call: int, requests: Requests) -> None:
    """Sends the requests of a list or tuple as long as there is room, and starts a thread for those that remain. All
    other iterables are read on that thread."""
    done, first = requests.send_ready(call) if requests.is_ready else (False, None)
    if not done:
        # The call may have ended already: then the promise matters no more.
        _raw.penstock_call_promise_half_close(call)
        requests.send_on_thread(waiters, call, first)
