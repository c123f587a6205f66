"""Synchronous interceptors: one function that sees a call whole, on a worker thread, and may wait."""

from __future__ import annotations

import threading
from typing import Any, Iterable, Optional

from . import _constants as c
from . import _raw
from ._arguments import c_string, milliseconds
from ._errors import GoneError, StateError, check
from ._hop import Hop, Registered
from ._metadata import Metadata, MetadataLike
from ._objects import Value, forget, registry, value_at
from ._side import SideChannel, side_flags
from ._status import CodeLike, DetailLike, Status, StatusCode, code_number
from ._ticket import message_of, put, set_message
from ._verdict import EventKind, Kind, Level

_current_thread = threading.get_ident


class SyncInterceptor:
    """Sees each call whole, in one function, and may wait in it.

    `intercept` runs on a worker thread of the runtime, of which there are ``Runtime(max_workers=...)``. One worker
    serves all the synchronous interceptors of a call, and what they wait for: so they may make calls of their own.
    """

    # The name for messages and lists; if empty, the class's name.
    name: str = ""
    # The level. At the object level messages are the caller's objects, otherwise the bytes that are sent.
    level: Level = Level.BYTES
    # Whether there is one for each attempt of a call, below those that exist once in it. Not at the object
    # level.
    per_attempt: bool = False

    def intercept(self, call: InterceptedCall) -> None:
        """Look at ``call`` and change it; call `InterceptedCall.next` and change the response; or end the call with
        `InterceptedCall.cancel`, or answer it with `InterceptedCall.answer`: one of the three.

        An exception ends the call with INTERNAL; the caller's `RpcError` has it as its ``__cause__``."""
        call.next()


class InterceptedCall:
    """A call in `SyncInterceptor.intercept`: to be used there, on that thread; anywhere else StateError.

    Where another hand has ended the call meanwhile (a cancel, the deadline, an interceptor above), what asks
    something of it gives GoneError.
    """

    __slots__ = ("__weakref__", "_handle", "_registered", "_running", "_thread")

    def __init__(self, handle: int, registered: Registered) -> None:
        self._handle = handle
        self._registered = registered
        self._running = True
        self._thread = _current_thread()

    def _end(self) -> None:
        """Notes that the function has returned."""
        self._running = False

    def _inside(self) -> int:
        if self._running and self._thread == _current_thread():
            return self._handle
        raise StateError(c.E_STATE, "allowed only in the interceptor's function, on its thread")

    def _request(self) -> int:
        """The start, as the function sees it."""
        return int(_raw.penstock_hop_request(self._inside()))

    def _before_next(self) -> int:
        handle = self._inside()
        if _raw.penstock_hop_event(handle) != EventKind.START:
            raise StateError(c.E_STATE, "the call has gone on: its request is there until next")
        return handle

    # ---- Going on, ending, answering: one of them, once ----

    def next(self) -> InterceptedReply:
        """Lets the call go on, with what has been changed in it, and waits for its response: the whole of it where
        there is one response message; of a stream the headers, or the status if that comes first.

        Where another hand ends the call meanwhile, the reply is ``gone`` and has the status that the caller gets.
        AlreadyError: a second time. StateError: after `cancel` or `answer`.
        """
        result = _raw.penstock_hop_next(self._inside())
        if result != c.E_GONE:
            check(result, "the call can't go on")
        return InterceptedReply(self, result == c.E_GONE)

    def cancel(
        self,
        code: CodeLike,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        """Ends the call at once, before or after `next`."""
        status = Status(code, message, details, trailers)
        check(
            _raw.penstock_hop_end_with(self._inside(), status._address()),
            "the call can't be ended here",
        )

    def answer(
        self,
        *messages: Any,
        headers: MetadataLike = None,
        code: CodeLike = StatusCode.OK,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        """Answers the call here, instead of `next`, and nothing goes below. The caller gets ``headers``,
        the ``messages`` as it asks for them, and the status."""
        handle = self._inside()
        status = Status(code_number(code), message, details, trailers)
        first: Optional[Metadata] = None
        if headers is not None:
            first = headers if isinstance(headers, Metadata) else Metadata(headers)
        words = "the call can't be answered now"
        if first is not None:
            check(_raw.penstock_hop_deliver_headers(handle, first._address), words)
        functions = _raw.penstock_hop_deliver_message, _raw.penstock_hop_deliver
        for data in messages:
            put(handle, data, functions, "the call can't be answered with this")
        check(_raw.penstock_hop_deliver_status(handle, status._address()), words)

    def side_channel(self, *, from_top: bool = False, detached: bool = False) -> SideChannel:
        """Makes side calls, which do not meet this interceptor; as `Hop.side_channel`."""
        hop = Hop(self._inside(), self._registered).retain()
        hop._end()
        return SideChannel(hop, side_flags(from_top, detached))

    # ---- The request: it can be changed until the call goes on ----

    @property
    def call_id(self) -> int:
        """A number that names the call within the process."""
        return int(_raw.penstock_hop_call_id(self._inside()))

    @property
    def kind(self) -> Kind:
        """Unary, client stream, server stream or bidi."""
        return Kind(_raw.penstock_hop_kind(self._inside()))

    @property
    def attempt(self) -> int:
        """The number of this instance: 1, and one more with each RESTART by an interceptor above."""
        return int(_raw.penstock_hop_attempt(self._inside()))

    @property
    def level(self) -> Level:
        """The level, object or bytes: a registration at both levels runs once at each."""
        return Level(_raw.penstock_hop_level(self._inside()))

    @property
    def target(self) -> str:
        """The channel's target, as it was given."""
        return _text(_raw.penstock_hop_target(self._inside()))

    @property
    def method(self) -> str:
        """``/package.Service/Method``; can be set."""
        return _text(_raw.penstock_request_method(self._request()))

    @method.setter
    def method(self, method: str) -> None:
        text = c_string(method, "a method")
        result = _raw.penstock_request_set_method(self._request(), text)
        check(result, f"the method can't be set to {method!r}")

    @property
    def authority(self) -> str:
        """The authority that is sent; can be set."""
        return _text(_raw.penstock_request_authority(self._request()))

    @authority.setter
    def authority(self, authority: str) -> None:
        text = c_string(authority, "an authority")
        result = _raw.penstock_request_set_authority(self._request(), text)
        check(result, f"authority {authority!r} can't be set")

    @property
    def deadline(self) -> Optional[float]:
        """The seconds until the deadline, 0 if it has passed, None if there is none; can be set, and then
        holds at once."""
        left = int(_raw.penstock_request_deadline_ms(self._request()))
        return None if left < 0 else left / 1000

    @deadline.setter
    def deadline(self, seconds: Optional[float]) -> None:
        left = -1 if seconds is None else milliseconds(seconds)
        check(_raw.penstock_request_set_deadline_ms(self._request(), left), "the deadline can't be set")

    @property
    def metadata(self) -> Metadata:
        """The request's metadata; read-only after `next`."""
        return Metadata._view(_raw.penstock_request_metadata(self._request()), self._inside)

    @property
    def request(self) -> Any:
        """The request message of a call that has one: its bytes, or at the object level the caller's own object;
        setting replaces it. None: the kind has many, or none was sent. StateError: after `next`."""
        return _message(self._before_next())

    @request.setter
    def request(self, data: Any) -> None:
        set_message(self._before_next(), data)

    # ---- Call values ----

    def set_value(self, key: str, value: object) -> None:
        """Shares ``value`` with the call's other interceptors and its caller; None removes."""
        name = c_string(key, "a key")
        handle = self._inside()
        if value is None:
            result = _raw.penstock_hop_set_value(handle, name, None, _raw.penstock_finalizer())
        else:
            number = registry.add(Value(value))
            result = _raw.penstock_hop_set_value(handle, name, number, forget)
        check(result, f"value {key!r} can't be set")

    def get_value(self, key: str, default: Any = None) -> Any:
        """The value under ``key``, or ``default``."""
        name = c_string(key, "a key")
        return value_at(_raw.penstock_hop_value(self._inside(), name), default)


class InterceptedReply:
    """The response of an `InterceptedCall`, which may be changed until the interceptor's function returns."""

    __slots__ = ("_call", "gone")

    def __init__(self, call: InterceptedCall, gone: bool) -> None:
        self._call = call
        # The call was ended elsewhere, so changes of the response have no effect.
        self.gone = gone

    @property
    def headers(self) -> Optional[Metadata]:
        """The response headers; None without (a trailers-only answer has none)."""
        pointer = _raw.penstock_hop_metadata(self._call._inside())
        return Metadata._view(pointer, self._call._inside) if pointer else None

    @property
    def message(self) -> Any:
        """The message of a call that has one response: its bytes, or at the object level the object that the caller
        gets; setting replaces it, or puts one in. None: the kind has many, or none came."""
        if self.gone:
            return None
        return _message(self._call._inside())

    @message.setter
    def message(self, data: Any) -> None:
        if self.gone:
            raise GoneError(c.E_GONE, "the call has ended")
        set_message(self._call._inside(), data)

    @property
    def status(self) -> Optional[Status]:
        """The status, which may be changed, with details and trailers. None: the headers of a stream have come, and
        no status yet; or an interceptor above has restarted the call."""
        pointer = _raw.penstock_hop_status(self._call._inside())
        return Status._view(pointer, self._call._inside) if pointer else None


def _message(handle: int) -> Any:
    """The message of a hop; None: there is none, or the kind has many."""
    try:
        return message_of(handle)
    except StateError:
        return None


def _text(text: Optional[bytes]) -> str:
    return (text or b"").decode("utf-8", "replace")
