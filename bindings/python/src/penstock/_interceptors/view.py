"""The view of a call that interceptors of every style have."""

from __future__ import annotations

from typing import Any, Iterable, Optional

from .. import _raw
from .._calls.encoding import Codec
from .._calls.side import side_flags
from .._calls.side_channel import SideChannel
from .._handles.arguments import c_string
from .._handles.errors import check_hop
from .._handles.metadata import MetadataLike
from .._handles.objects import Value, forget, registry, value_at
from .._handles.status import DetailLike, Status, StatusLike, as_status, code_number
from .._handles.verdict import Kind, Level
from .request import RequestFields, text_of


class HopView(RequestFields):
    """One interceptor in one call: the base of `Hop` and `InterceptedCall`. Both show and do all of this alike."""

    __slots__ = ()

    def _shown(self) -> int:
        """The handle, for C functions that are allowed in the callback only; elsewhere StateError."""
        raise NotImplementedError

    @property
    def _anywhere(self) -> int:
        """The handle, for C functions that are allowed on any thread."""
        return self._shown()

    def _kept_hop(self) -> Any:
        """The `Hop`, retained."""
        raise NotImplementedError

    # ---- The call ----

    @property
    def call_id(self) -> int:
        """The number of the call, unique within the process."""
        return int(_raw.penstock_hop_call_id(self._anywhere))

    @property
    def kind(self) -> Kind:
        """Unary, client stream, server stream or bidi."""
        return Kind(_raw.penstock_hop_kind(self._anywhere))

    @property
    def attempt(self) -> int:
        """1 for the first hop that this interceptor has in the call. Each RESTART by a hop above makes a new hop,
        whose number is one higher; with ``per_attempt`` each further attempt of the library itself also makes one."""
        return int(_raw.penstock_hop_attempt(self._shown()))

    @property
    def level(self) -> Level:
        """The level of this hop: `Level.OBJECT` or `Level.BYTES`."""
        return Level(_raw.penstock_hop_level(self._anywhere))

    @property
    def target(self) -> str:
        """The target, as the program gave it to the channel."""
        return text_of(_raw.penstock_hop_target(self._anywhere))

    @property
    def protocol(self) -> str:
        """The protocol of the call's channel, or of the channel to which a hop has redirected the call: ``"grpc"``,
        ``"grpc-web"``, ``"grpc-web-text"`` or ``"connect"``."""
        return text_of(_raw.penstock_hop_protocol(self._anywhere))

    @property
    def is_secure(self) -> bool:
        """Whether the call is protected on its way, by TLS or a unix socket."""
        return bool(_raw.penstock_hop_is_secure(self._anywhere))

    # ---- Call values ----

    def set_value(self, key: str, value: object) -> None:
        """Shares ``value`` with the call's other hops and its caller; None removes it. Keys that begin with
        ``penstock.`` are reserved for the library."""
        name = c_string(key, "a key")
        if value is None:
            result = _raw.penstock_hop_set_value(self._shown(), name, None, _raw.penstock_finalizer())
        else:
            handle = self._shown()
            result = _raw.penstock_hop_set_value(handle, name, registry.add(Value(value)), forget)
        check_hop(self._handle, result, f"value {key!r} can't be set")

    def get_value(self, key: str, default: Any = None) -> Any:
        """The value under ``key``, or ``default``. A pointer that C has set is given as an int, its address."""
        return value_at(_raw.penstock_hop_value(self._shown(), c_string(key, "a key")), default)

    # ---- What may be done with it ----

    def end(
        self,
        code: StatusLike,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        """Ends the call here, with a code and the other arguments, or with a `Status` alone. The verdict of the
        running callback is ignored. A synchronous function may end the call before and after `next`. Not allowed in
        `create`, `destroy` and `on_cancel`, nor in an `on_status` that reports a local cancel or the deadline. A kept
        hop can end its call from any thread: the call then ends soon. If this raises nothing, the end is final: only
        a hop above, a cancel or the deadline can come before it."""
        details = tuple(details)
        if isinstance(code, Status) or details or trailers is not None:
            status = as_status(code, message, details, trailers)
            result = _raw.penstock_hop_end_with(self._anywhere, status._address())
        else:
            text = c_string(message, "a message")
            result = _raw.penstock_hop_end(self._anywhere, code_number(code), text)
        check_hop(self._handle, result, "the call can't be ended here")

    def half_close(self) -> None:
        """Half-closes in place of the caller, after the events that wait at this hop and the event of the running
        callback: later events from above go no further. Any thread."""
        check_hop(self._handle, _raw.penstock_hop_half_close(self._anywhere), "the requests can't be ended here")

    def side_channel(
        self, *, from_top: bool = False, detached: bool = False, codec: Optional[Codec] = None
    ) -> SideChannel:
        """Returns an object with the call methods of a channel, so stubs work on it. It makes side calls, further
        calls on this call's own channel, for a thread that may wait. The chain of a side call has only the
        interceptors below this hop; with ``from_top`` it has all of them. A side call inherits the deadline, and ends
        with this call; with ``detached`` it does neither. The object keeps the hop.

        The serializers of its stubs are used even if this call's channel has a codec, because an interceptor need not
        know which codec that is. ``codec`` replaces them, as ``codec`` of a `Channel` does."""
        return SideChannel(self._kept_hop(), side_flags(from_top, detached), codec)
