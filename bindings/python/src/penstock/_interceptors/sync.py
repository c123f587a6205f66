"""Synchronous interceptors: one function that sees the whole call, and may wait."""

from __future__ import annotations

import threading
from typing import Any, Iterable, List, Optional

from .. import _raw
from .._calls.wait import Waiters, step_in, step_out
from .._handles.ctrl_c import call as call_c
from .._handles.errors import GoneError, StateError, check_hop
from .._handles.metadata import Metadata, MetadataLike
from .._handles.status import CodeLike, DetailLike, Status, StatusCode, code_number
from .._handles.verdict import EventKind, Kind, Kinds, Level
from .._raw import constants as c
from .events import message_of, put, set_message
from .hop import Hop, Registered
from .view import HopView

_current_thread = threading.get_ident


# The kinds of call that have one request message.
_ONE_REQUEST = (Kind.UNARY, Kind.SERVER_STREAM)


class SyncInterceptor:
    """Sees each call from start to end in one function, which may wait.

    For a unary call in blocking style `intercept` runs on the thread that makes the call, within the call:
    thread-locals are the caller's own, and the call returns after `intercept` has. For other calls it runs on a
    worker thread of the runtime, which has up to ``max_workers`` of them (see `Runtime`). A call takes one thread,
    however many synchronous interceptors it meets. The calls that these interceptors make and wait for use the same
    thread.
    """

    # The name in error messages and lists; if empty, the class's name.
    name: str = ""
    # The level. At the object level messages are the caller's objects, otherwise the bytes that are sent.
    level: Level = Level.BYTES
    # Whether the function runs once for each attempt of a call, below the interceptors that run once per call. Not
    # allowed with `Level.OBJECT`.
    per_attempt: bool = False
    # How many bytes of request messages are recorded, so that `InterceptedCall.next` can begin the call again; 0 is
    # 65536, but nothing is recorded with `per_attempt`.
    replay_bytes: int = 0
    # How many bytes of messages may wait at the hop per call and lane, besides one message; 0 is 65536.
    hold_bytes: int = 0
    # The kinds of streams in which `InterceptedCall.next` does not return with the response's headers, but with the
    # first message or the status, so that it can begin the call again behind headers, too. None: no kind.
    headers_wait: Kinds = None
    # How many times `InterceptedCall.next` may begin one call again; 0: without limit.
    max_restarts: int = 0

    def intercept(self, call: InterceptedCall) -> None:
        """Reads ``call`` and may change it. Then it has to do one of three things: call `InterceptedCall.next`,
        after which it may change the response; or end the call with `InterceptedCall.end`; or answer it with
        `InterceptedCall.answer`.

        An exception ends the call with INTERNAL and a message that names its type; the caller's `RpcError` has it as
        its ``__cause__``. On the caller's thread KeyboardInterrupt and the like cancel the call, and the caller gets
        them as they are."""
        call.next()


class InterceptedCall(HopView):
    """A call in `SyncInterceptor.intercept`. It may be used only in that function, on its thread; elsewhere its
    methods raise StateError. For other threads and for later use there is `hop`.

    If a cancel, the deadline or an interceptor above has ended the call, the methods raise GoneError.
    """

    __slots__ = ("__weakref__", "_handle", "_hop", "_registered", "_reply", "_running", "_thread", "_waits")

    def __init__(self, handle: int, registered: Registered, waits: List[Waiters]) -> None:
        self._handle = handle
        # The waits of the caller's own thread, within which the function runs; empty on a worker.
        self._waits = waits
        self._registered = registered
        self._hop: Optional[Hop] = None
        self._reply: Optional[InterceptedReply] = None
        self._running = True
        self._thread = _current_thread()

    def _end(self) -> None:
        """Notes that the function has returned."""
        self._running = False
        self._reply = None
        if self._hop is not None:
            self._hop._end()

    def _inside(self) -> int:
        if self._running and self._thread == _current_thread():
            return self._handle
        raise StateError(c.E_STATE, "allowed only in the interceptor's function, on its thread")

    _shown = _inside

    def _kept_hop(self) -> Hop:
        return self.hop

    def _before_next(self) -> int:
        handle = self._inside()
        if _raw.penstock_hop_event(handle) != EventKind.START:
            raise StateError(c.E_STATE, "the request message can be used only before next")
        return handle

    # ---- The three ways to finish: let the call go on, end it, or answer it ----

    def next(self) -> InterceptedReply:
        """Lets the call go on with its changes, and waits for the response. If the kind of call has one response,
        `next` waits for the whole response; if it has a stream of responses, for the headers, or for the status if
        there are no headers.

        If something else ends the call during the wait, the reply has ``gone`` set, and its status is the one that
        the caller gets.

        After a reply that has a status, `next` may be called again: the call begins again below this interceptor,
        with the changes made since, and the new reply replaces the earlier one. StateError: `end` or `answer` has
        been called; or the call can't begin again, because its request is too large to be kept, or because the
        headers of a stream have come. If it can't begin again, the caller gets the earlier reply.
        """
        handle = self._inside()
        step_in(self._waits)
        try:
            result = call_c(_raw.penstock_hop_next, handle)
        finally:
            if self._waits:
                step_out()
        if result != c.E_GONE:
            check_hop(self._handle, result, "the call can't go on")
        self._reply = InterceptedReply(self, result == c.E_GONE)
        return self._reply

    def answer(
        self,
        *messages: Any,
        headers: MetadataLike = None,
        code: CodeLike = StatusCode.OK,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        """Answers the call here, instead of calling `next`: nothing is sent to the server. The caller gets
        ``headers``, then the ``messages`` as it asks for them, and the status."""
        handle = self._inside()
        status = Status(code_number(code), message, details, trailers)
        words = "the call can't be answered now"
        if headers is not None:
            first = headers if isinstance(headers, Metadata) else Metadata(headers)
            check_hop(handle, _raw.penstock_hop_deliver_headers(handle, first._address), words)
        functions = _raw.penstock_hop_deliver_message, _raw.penstock_hop_deliver
        for data in messages:
            put(handle, data, functions, "the call can't be answered with this")
        check_hop(handle, _raw.penstock_hop_deliver_status(handle, status._address()), words)

    @property
    def hop(self) -> Hop:
        """The hop, retained for other threads and for later use. With it other threads can send and deliver messages,
        half-close the call and end the call, also while the function waits in `next`. Ask for the hop in the
        function."""
        handle = self._inside()
        if self._hop is None:
            self._hop = Hop(handle, self._registered).retain()
        return self._hop

    # ---- The request: it can be changed before each `next` ----

    @property
    def metadata(self) -> Metadata:
        """The request's metadata. It is read-only once `next` has returned a reply without a status."""
        return self.request_metadata

    @property
    def request(self) -> Any:
        """The request message of a call that has one: its bytes, or at the object level the caller's own object;
        setting replaces it, before `next` and for a further `next`. None: this kind of call has many requests, or
        none was sent. StateError: after a `next` that has returned no status, or where the call can't begin again."""
        if self._reply is None:
            return _message(self._before_next())
        return next(iter(self.request_messages), None) if self.kind in _ONE_REQUEST else None

    @request.setter
    def request(self, data: Any) -> None:
        if self._reply is None:
            set_message(self._before_next(), data)
        else:
            self.set_request_message(0, data)


class InterceptedReply:
    """The response of an `InterceptedCall`, which may be changed until the interceptor's function returns. Once
    the function has called `InterceptedCall.next` again, only headers and status can be read, and nothing can be
    changed."""

    __slots__ = ("_call", "_headers", "_status", "gone")

    def __init__(self, call: InterceptedCall, gone: bool) -> None:
        self._call = call
        # Both pointers stay valid until the interceptor's function returns, even if a further `next` has given
        # another response.
        self._headers = _raw.penstock_hop_metadata(call._handle)
        self._status = _raw.penstock_hop_status(call._handle)
        # Whether the call was ended elsewhere. Then changes of the response have no effect.
        self.gone = gone

    def _last(self) -> int:
        handle = self._call._inside()
        if self._call._reply is self:
            return handle
        raise StateError(c.E_STATE, "next has been called again, so this message is gone")

    @property
    def headers(self) -> Optional[Metadata]:
        """The response headers; None for a trailers-only response."""
        self._call._inside()
        return Metadata._view(self._headers, self._call._inside) if self._headers else None

    @property
    def message(self) -> Any:
        """The message of a call that has one response: its bytes, or at the object level the object that the caller
        gets; setting it replaces the message, or adds one. None: this kind of call has many responses, or none
        came."""
        handle = self._last()
        return None if self.gone else _message(handle)

    @message.setter
    def message(self, data: Any) -> None:
        if self.gone:
            raise GoneError(c.E_GONE, "the call has ended")
        set_message(self._last(), data)

    @property
    def status(self) -> Optional[Status]:
        """The status, which may be changed, with details and trailers. None: only the headers of a stream have come;
        or an interceptor above has restarted the call; or another thread has ended the call with
        `InterceptedCall.hop`."""
        self._call._inside()
        return Status._view(self._status, self._call._inside) if self._status else None


def _message(handle: int) -> Any:
    """The message of a hop; None: there is none, or this kind of call has many."""
    try:
        return message_of(handle)
    except StateError:
        return None
