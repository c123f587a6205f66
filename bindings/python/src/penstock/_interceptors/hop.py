"""The hop that an interceptor's callback gets: with it the callback reads and changes the event and the call, defers
the event, ends the call or answers it."""

from __future__ import annotations

import json
import threading
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Optional, Set, Tuple, Union

from .. import _raw
from .._calls.keywords import CallKeywords, Interceptors, takes
from .._calls.method import ChannelLike
from .._calls.options import CallOptions, call_options, has_begun
from .._calls.side import OnReply, begin_unary, side_flags
from .._handles.arguments import Payload, Uncompressed, c_string, whole_number
from .._handles.context import Scoped
from .._handles.errors import StateError, check_hop
from .._handles.metadata import Metadata, MetadataLike, owned_text
from .._handles.objects import Objects, own
from .._handles.reply import certificates
from .._handles.status import DetailLike, Status, StatusLike, as_status
from .._handles.verdict import EventKind
from .._raw import constants as c
from .events import message_of, metadata_of, put, set_message, status_of
from .executor import Executor, address
from .request import text_of
from .ticket import Ticket
from .view import HopView

_UINT64 = 2**64 - 1
_current_thread = threading.get_ident


class Registered(Scoped):
    """The registry's object for one registration: its name, the bound methods that C may call, and a function that
    registers interceptors for side calls of its hops."""

    __slots__ = ("keeps", "methods", "name", "register")

    def __init__(
        self,
        name: str,
        methods: Any,
        register: Callable[[CallOptions, Interceptors], object],
        context: Optional[Context] = None,
        kept: Optional[Objects] = None,
    ) -> None:
        super().__init__(context, kept)
        self.name = name
        self.methods = methods
        self.register = register
        # The objects that a side call of its hops keeps while it runs.
        self.keeps: Tuple[Objects, ...] = () if kept is None else (kept,)

    def for_call(self, methods: Any) -> Registered:
        """What the registry has for one call, whose callbacks are in ``methods``."""
        made = Registered(self.name, methods, self.register)
        made.context, made.keeps = self.context, self.keeps
        return made


class Instance:
    """The object whose number C passes to the callbacks of an interceptor that has `create` or `destroy`: the
    interceptor's registration, and its state for one call. ``failure``: the exception of `create`, after which no
    other callback is called."""

    __slots__ = ("failure", "registered", "state", "tasks")

    def __init__(self, registered: Registered, state: object) -> None:
        self.registered = registered
        self.state = state
        self.failure: Optional[BaseException] = None
        # The tasks of `async def` callbacks that hold up an event.
        self.tasks: Set[Any] = set()


@dataclass(eq=False, repr=False)
class _SideCall:
    method: str
    request: Union[Payload, Uncompressed]
    on_reply: OnReply
    from_top: bool = False
    detached: bool = False


@dataclass(eq=False, repr=False)
class SideCallArguments(CallKeywords, _SideCall):
    """The arguments of `Hop.unary`: those of a call, and the function that gets the reply."""


class Hop(HopView):
    """One interceptor in one call.

    The hop may be used in the callback that got it, on the callback's thread. After `retain`, `ticket` or the verdict
    TAKE it may be used later, and on other threads. A method that is not allowed where it is called raises
    StateError; after the call's end, GoneError.
    """

    __slots__ = ("__weakref__", "_handle", "_retained", "_running", "_seen_by", "_thread")

    def __init__(self, handle: int, seen_by: Union[Instance, Registered]) -> None:
        self._handle = handle
        self._seen_by = seen_by
        self._retained = False
        self._running = True
        self._thread = _current_thread()

    # ---- Where the hop may be used ----

    def _end(self) -> None:
        """Notes that the callback has returned."""
        self._running = False

    def _callback(self) -> int:
        """The handle, for C functions that are allowed in the callback only; elsewhere StateError."""
        if self._running and self._thread == _current_thread():
            return self._handle
        raise StateError(c.E_STATE, "allowed only in the hop's callback, on its thread")

    _shown = _callback

    def _kept_hop(self) -> Hop:
        return self.retain()

    @property
    def _anywhere(self) -> int:
        """The handle, for C functions that are allowed on any thread. StateError: the hop is used outside its
        callback and was not kept."""
        if self._retained or (self._running and self._thread == _current_thread()):
            return self._handle
        raise StateError(c.E_STATE, "the hop's callback has returned: call hop.retain() in it to use the hop later")

    def retain(self) -> Hop:
        """Keeps the hop beyond its callback, for any thread; returns it.

        A kept hop keeps the memory of its call, and its interceptor, so drop it after the call.
        """
        if not self._retained:
            retained = _raw.penstock_hop_retain(self._callback())
            self._handle = own(self, _raw.penstock_hop_release, retained)
            self._retained = True
        return self

    # ---- The call ----

    @property
    def event(self) -> EventKind:
        """The event of the running callback."""
        return EventKind(_raw.penstock_hop_event(self._anywhere))

    @property
    def address(self) -> Optional[str]:
        """The address that was picked for the attempt, such as ``192.0.2.1:443``, in `on_pick`; None elsewhere."""
        found = _raw.penstock_hop_address(self._callback())
        return None if found is None else text_of(found)

    def address_attribute(self, name: str) -> Optional[str]:
        """The value of an attribute that the resolver has given the picked address, in `on_pick`; None: there is
        none."""
        found = _raw.penstock_hop_address_attribute(self._callback(), c_string(name, "the name of an attribute"))
        return None if found is None else text_of(found)

    @property
    def state(self) -> Any:
        """The object that `create` returned for this call; can be set. AttributeError: the interceptor has neither
        `create` nor `destroy`."""
        return self._own_instance().state

    @state.setter
    def state(self, state: Any) -> None:
        self._own_instance().state = state

    def _own_instance(self) -> Instance:
        if isinstance(self._seen_by, Instance):
            return self._seen_by
        raise AttributeError("there is no state: the interceptor has no create()")

    def set_executors(self, outbound: Optional[Executor], inbound: Optional[Executor]) -> None:
        """Sets, in `create`, the executors of the hop's other callbacks in this call: `on_start`, `on_send`,
        `on_half_close` and `on_sent` run on ``outbound``, the others on ``inbound``; None is the thread that drives
        the runtime."""
        result = _raw.penstock_hop_set_executors(self._callback(), address(outbound), address(inbound))
        check_hop(self._handle, result, "the executors can't be chosen")

    @property
    def trace(self) -> Dict[str, Any]:
        """The events of the call so far (with the option ``trace`` of the channel or the call), and ``holder``, which
        says what the call waits for now."""
        trace: Dict[str, Any] = json.loads(owned_text(_raw.penstock_hop_trace_json, self._anywhere))
        return trace

    # ---- Other calls, other channels ----

    def set_channel(self, channel: ChannelLike) -> None:
        """Redirects the call to another channel of the same runtime; allowed in `on_start`, and in `on_status` before
        a RESTART. The call keeps its interceptors, options and deadline; its connection, TLS, target and default
        authority are the other channel's. Closing either channel ends the call.

        StateError: the channel is on another loop of the runtime (``loops`` of `Runtime`)."""
        self._set(_raw.penstock_request_set_channel, channel._handle, "the call can't be sent there")

    def _register(self, options: CallOptions, interceptors: Interceptors) -> None:
        """Registers the interceptors that the program has given to a side call, on the options of that call."""
        self._registered.register(options, interceptors)

    @property
    def _registered(self) -> Registered:
        return self._seen_by.registered if isinstance(self._seen_by, Instance) else self._seen_by

    @property
    def _keeps(self) -> Tuple[Objects, ...]:
        return self._registered.keeps

    @takes(SideCallArguments)
    def unary(self, call: SideCallArguments) -> None:
        """Makes a unary side call, in a callback or on any thread. At its end ``on_reply(response, outcome)`` is
        called, on a thread that runs callbacks; the response is None unless the code is OK. ``from_top``,
        ``detached``: as in `side_channel`. The other keywords are those of a channel's methods; the call meets all
        of its ``interceptors``, whatever their priority. GoneError: the hop's call has ended."""
        context = copy_context()
        options = call_options(call, context=context, keeps=self._keeps)
        if call.interceptors:
            self._register(options, call.interceptors)
        flags = side_flags(call.from_top, call.detached)
        begin_unary(self._anywhere, call.method, call.request, call.on_reply, flags, options, context)
        has_begun(options)

    # ---- The event ----

    @property
    def metadata(self) -> Metadata:
        """The metadata of the event: in `create` and `on_start` the request's, in `on_headers` the
        response's, in `on_status` and `on_cancel` the trailers. StateError elsewhere."""
        return metadata_of(self._callback(), self._callback)

    @property
    def can_restart(self) -> bool:
        """Whether `on_status` may return RESTART now."""
        return int(_raw.penstock_hop_can_restart(self._callback())) == c.OK

    @property
    def message(self) -> Any:
        """The message, in `on_send` and `on_receive`: its bytes, or at the object level the caller's own object;
        setting replaces it. The new message may be an `Uncompressed`."""
        return message_of(self._callback())

    @message.setter
    def message(self, data: Any) -> None:
        set_message(self._callback(), data)

    @property
    def status(self) -> Status:
        """The status, in `on_status` (where it can be changed) and `on_cancel`. StateError elsewhere."""
        return status_of(self._callback(), self._callback)

    @property
    def count(self) -> int:
        """In `on_demand`, how many more messages are asked for; setting it changes how many are asked for below. In
        `on_sent`, how many messages the transport has taken, or hops below have dropped, since the last `on_sent`.
        Elsewhere 0."""
        return int(_raw.penstock_hop_count(self._callback()))

    @count.setter
    def count(self, n: int) -> None:
        whole_number(n, "n", 0, _UINT64)
        check_hop(self._handle, _raw.penstock_hop_set_count(self._callback(), n), "n can't be set here")

    # ---- Statistics ----

    @property
    def stats(self) -> Dict[str, Any]:
        """The statistics of the call so far, as in `RpcError.stats`; values that are not known yet are None or 0.
        The peer and TLS are known in `on_headers` at the latest."""
        stats: Dict[str, Any] = json.loads(owned_text(_raw.penstock_hop_stats_json, self._anywhere))
        return stats

    @property
    def peer_certificates(self) -> Optional[str]:
        """The certificates that the server has sent, its own first, in PEM form; None without TLS."""
        return certificates(_raw.penstock_hop_peer_certificates_pem, self._anywhere)

    # ---- Ending, injecting, answering ----

    def send_message(self, data: Any) -> None:
        """Sends a message of this hop's own toward the server, before the event of the running callback. A kept hop
        can send from any thread: the message then leaves soon, unless the half-close has passed the hop before."""
        functions = _raw.penstock_hop_send_message, _raw.penstock_hop_send
        put(self._anywhere, data, functions, "no message can be sent here")

    def deliver_message(self, data: Any) -> None:
        """Delivers a message toward the caller: an injected message, which the server has not sent, or part of the
        answer of a hop that has taken the call or still may take it. Any thread. A message of an answer waits until
        somebody asks for it; the waiting messages may have ``hold_bytes`` together, and one always has room.

        WouldBlockError: nobody asks for a message now (`on_demand` tells when somebody does), or more than
        ``hold_bytes`` would wait."""
        functions = _raw.penstock_hop_deliver_message, _raw.penstock_hop_deliver
        put(self._anywhere, data, functions, "no message can be delivered now")

    def deliver_headers(self, metadata: MetadataLike = None) -> None:
        """Delivers the response headers, in a hop that answers the call (TAKE): once, and before any message. From
        `on_start` on, on any thread."""
        headers = metadata if isinstance(metadata, Metadata) else Metadata(metadata)
        check_hop(
            self._handle,
            _raw.penstock_hop_deliver_headers(self._anywhere, headers._address),
            "no headers can be delivered now",
        )

    def deliver_status(
        self,
        code: StatusLike,
        message: str = "",
        details: Iterable[DetailLike] = (),
        trailers: MetadataLike = None,
    ) -> None:
        """Delivers the status, in a hop that answers the call (TAKE). From `on_start` on, on any thread."""
        status = as_status(code, message, details, trailers)
        check_hop(
            self._handle,
            _raw.penstock_hop_deliver_status(self._anywhere, status._address()),
            "no status can be delivered now",
        )

    def demand(self, n: int = 1) -> None:
        """Asks the layers below, in the end the server, for ``n`` messages, in addition to those that were asked for
        before. Any thread."""
        whole_number(n, "n", 0, _UINT64)
        check_hop(self._handle, _raw.penstock_hop_demand(self._anywhere, n), "no messages can be asked for now")

    # ---- Deferring ----

    def ticket(self) -> Ticket:
        """The ticket for the event of the running callback, to be asked for before the callback returns PAUSE or
        HOLD. It keeps the hop, as `retain` does. StateError: the event can't be paused, because it is a signal, or
        the status of a local cancel or deadline."""
        number = int(_raw.penstock_hop_ticket(self._callback()))
        if number == 0:
            raise StateError(c.E_STATE, f"{self.event.name} can't be paused here")
        self.retain()
        return Ticket(number)
