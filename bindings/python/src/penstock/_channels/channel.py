"""Channels: a target, its connections and its interceptors."""

from __future__ import annotations

import json
import time
from ctypes import byref, c_int32, c_void_p
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple, Union

from .. import _raw
from .._calls.blocking import unary
from .._calls.caller import Caller
from .._calls.encoding import Codec
from .._calls.keywords import Interceptors
from .._calls.options import CallOptions
from .._calls.steps import start
from .._calls.wait import Waiters
from .._handles.arguments import c_string, milliseconds
from .._handles.ctrl_c import call
from .._handles.errors import check, check_with, library_error
from .._handles.metadata import owned_text
from .._handles.objects import Keeper, Objects
from .._handles.verdict import Connectivity
from .._interceptors.registration import Registering, register_all
from .._raw.constants import E_ALREADY, E_INTERRUPTED, OK
from .picker import Picker, set_picker
from .resolver import Resolver
from .runtime import Runtime, default_runtime
from .watch import Changed, watch

TLS = Union[bool, Mapping[str, Any]]


class Channel(Keeper, Registering, Caller):
    """A target, its connections and its interceptors. As a context manager it closes itself at the end of the
    with block.

    ``target``: ``host:port``, ``dns:///host:port``, ``ipv4:1.2.3.4:5,...``, ``ipv6:[::1]:5,...``, ``unix:/path``,
    ``unix-abstract:name``, ``vsock:cid:port``, ``passthrough:///host:port``, or a URL: ``https://host:port/prefix``
    or ``http://host:port/prefix``.
    ``tls``: True (roots of the system), False (cleartext), a mapping with ``roots_pem``, ``roots_file``,
    ``certificate_chain_pem``, ``certificate_chain_file``, ``private_key_pem``, ``private_key_file``,
    ``server_name``, ``verify``, or None: the library's default, which is TLS except for unix sockets and ``http://``.
    ``options``: ``protocol`` (``"grpc"``, ``"grpc-web"``, ``"grpc-web-text"`` or ``"connect"``), ``http``
    (``"auto"``, ``"2"`` or ``"1.1"``), ``max_get_url_bytes``, ``http1_max_connections``, ``http1_idle_timeout_ms``,
    ``authority``, ``content_subtype``, ``user_agent``, ``default_deadline_ms``, ``max_receive_message_bytes``,
    ``max_send_message_bytes``, ``max_header_list_bytes``, ``connect_timeout_ms``, ``wait_for_ready``,
    ``service_config``, ``max_connections_per_subchannel``, ``health_checks``, ``idle_timeout_ms``,
    ``max_connection_age_ms``, ``initial_backoff_ms``, ``max_backoff_ms``, ``backoff_multiplier``,
    ``backoff_jitter``, ``dns_srv``, ``min_resolve_interval_ms``, ``resolve_interval_ms``, ``silence_event_ms``,
    ``keepalive_time_ms``, ``keepalive_timeout_ms``, ``keepalive_without_calls``, ``compression``,
    ``compression_min_bytes``, ``initial_stream_window_bytes``, ``initial_connection_window_bytes``,
    ``max_window_bytes``, ``tie_order``, ``trace``: see docs/options.md.
    ``interceptors``: each an interceptor, or (interceptor, priority). ``runtime``: a `Runtime`, instead of the
    default one. ``resolver``: a `Resolver` that finds the addresses, instead of a look-up of the target's name.
    ``picker``: a function that chooses the server of each attempt: see `set_picker`. ``codec``: a `Codec` that
    replaces the serializers of all methods, such as ``ProtobufJSONCodec()``.

    The channel connects at its first call. InvalidArgumentError: the target or an option is wrong; its ``path``
    names it.
    """

    def __init__(
        self,
        target: str,
        *,
        tls: Optional[TLS] = None,
        options: Optional[Mapping[str, Any]] = None,
        interceptors: Interceptors = (),
        runtime: Optional[Runtime] = None,
        resolver: Optional[Resolver] = None,
        picker: Optional[Picker] = None,
        codec: Optional[Codec] = None,
    ) -> None:
        self.target = target
        self._encoding = codec
        self._runtime = runtime if runtime is not None else default_runtime()
        chosen = dict(options or {})
        if tls is not None:
            if "tls" in chosen:
                raise ValueError('TLS is given twice: by tls= and by options["tls"]')
            chosen["tls"] = tls
        text = json.dumps(chosen, default=_json_default)
        handle, error = c_void_p(), c_void_p()
        result = _raw.penstock_channel_new_on(
            self._runtime._used(),
            c_string(target, "a target"),
            c_string(text, "options"),
            byref(handle),
            byref(error),
        )
        check_with(result, error)
        assert handle.value is not None
        self._handle: int = self._own(_raw.penstock_channel_release, handle.value)
        self._registered: Set[int] = set()
        self._kept: Objects = {}
        register_all(self, interceptors)
        if resolver is not None:
            resolver._join(self._handle, self._kept)
        if picker is not None:
            self.set_picker(picker)

    def _registry_functions(self) -> Tuple[str, int]:
        return "penstock_channel", self._handle

    def _has_registered(self, number: int) -> None:
        self._registered.add(number)

    def _has_removed(self, number: int) -> None:
        self._registered.discard(number)
        self._kept.pop(-number, None)

    # ---- Calls ----

    @property
    def _waiters(self) -> Waiters:
        return self._runtime._waiters

    @property
    def _calls_back(self) -> bool:
        return self._has_callbacks or self._runtime._has_callbacks

    @property
    def _keeps(self) -> Tuple[Objects, ...]:
        return self._kept, self._runtime._kept

    @property
    def _sees_objects(self) -> bool:
        return self._has_object_level or self._runtime._has_object_level

    def _register(self, options: CallOptions, interceptors: Interceptors) -> None:
        register_all(options, interceptors)

    def _start(self, method: bytes, kind: int, options: CallOptions) -> int:
        return start(self._handle, method, kind, options)

    def _unary(self, method: bytes, options: CallOptions, data: bytes) -> Optional[int]:
        if self._has_interceptors or self._runtime._has_interceptors:
            return None
        return unary(self._waiters, self._handle, method, options, data)

    # ---- Interceptors ----

    @property
    def interceptors(self) -> List[Dict[str, Any]]:
        """The registrations on the channel and its runtime, in the order that calls meet them: id, name,
        priority, place (``"runtime"`` or ``"channel"``), level, per (``"call"`` or ``"attempt"``), methods,
        kinds, calls_in_flight, calls_seen. Interceptors of single calls are not listed."""
        listed: List[Dict[str, Any]] = json.loads(owned_text(_raw.penstock_channel_interceptors_json, self._handle))
        return listed

    # ---- Connection ----

    @property
    def connectivity(self) -> Connectivity:
        """The state of the channel now."""
        return Connectivity(_raw.penstock_channel_connectivity(self._handle))

    def wait_connectivity(self, state: Connectivity, timeout: Optional[float] = None) -> Connectivity:
        """Waits until the channel's state differs from ``state``, up to ``timeout`` seconds (None: without limit),
        and returns the new state. It does not make the channel connect.

        TimedOutError: the state is still ``state``. WouldDeadlockError: in a callback."""
        until = None if timeout is None else time.monotonic() + timeout
        now = c_int32()
        result = E_INTERRUPTED
        with self._waiters:
            # The library interrupts the wait a few times a second, so that Python's signal handlers run.
            while result == E_INTERRUPTED:
                wait_ms = -1 if until is None else milliseconds(max(until - time.monotonic(), 0))
                result = call(_raw.penstock_channel_wait_connectivity, self._handle, int(state), wait_ms, byref(now))
        if result != OK:
            raise library_error(result, f"the channel's state is still {Connectivity(state).name}")
        return Connectivity(now.value)

    def watch_connectivity(self, changed: Changed) -> None:
        """Calls ``changed(state)`` soon with the current state, and afterwards with each new state, on the thread
        that drives the runtime: it must not wait. If several states follow each other at once, ``changed`` gets only
        the last. The watch is over when ``changed`` returns False or has got SHUTDOWN. A watch does not make the
        channel connect.

        ClosedError: the channel is closed."""
        watch(self._handle, changed, self._kept)

    def set_picker(self, picker: Optional[Picker]) -> None:
        """Lets ``picker(pick)`` choose the server of each attempt from now on, instead of the policy of the service
        config; None: the policy chooses again. While a picker is set, the channel connects to every address.

        The picker gets a `Pick`, and returns one of ``pick.endpoints`` or its index; None, so that the call waits
        until the endpoints change; or ``pick.fail(code, message)``. It runs on the thread that drives the runtime, so
        it must not wait. An exception ends the call with INTERNAL. ClosedError: the channel is closed."""
        self._has_callbacks = self._has_callbacks or picker is not None
        set_picker(self._handle, picker, self._kept)

    def connect(self) -> None:
        """Makes an idle channel connect, without a call. Does not wait; in any other state it does nothing."""
        check(_raw.penstock_channel_connect(self._handle))

    def reset_backoff(self) -> None:
        """Lets the next attempts to connect, and the next look-up of the name, begin at once instead of after their
        back-off. Does not wait."""
        check(_raw.penstock_channel_reset_backoff(self._handle))

    # ---- TLS ----

    def set_tls_pem(
        self,
        roots: Union[str, bytes, None] = None,
        certificate_chain: Union[str, bytes, None] = None,
        private_key: Union[str, bytes, None] = None,
    ) -> None:
        """Sets certificates in PEM form for connections that begin from now on, such as renewed certificates of a
        client. A part that is None is taken from ``tls=`` again; if ``tls=`` names a file, the file is read again. An
        existing connection stays.

        StateError: the channel has no TLS. InvalidArgumentError: a text does not parse, or chain and key do not
        belong together."""
        parts = [part for text in (roots, certificate_chain, private_key) for part in _pem(text)]
        error = c_void_p()
        check_with(_raw.penstock_channel_set_tls_pem(self._handle, *parts, byref(error)), error)

    # ---- The end ----

    def close_gracefully(self, timeout: Optional[float] = None) -> None:
        """Closes the channel, as `close` does, when its last call has ended, at the latest after ``timeout`` seconds
        (None: without limit). Until then running calls go on with their interceptors, and no call can be made. Does
        not wait: `connectivity` is SHUTDOWN when the channel has closed. Does nothing if the channel is closed or
        closes already."""
        timeout_ms = -1 if timeout is None else milliseconds(timeout)
        result = _raw.penstock_channel_close_gracefully(self._handle, timeout_ms)
        if result not in (OK, E_ALREADY):
            raise library_error(result, "the channel can't be closed")

    def close(self) -> None:
        """Ends every call with CANCELLED and closes the connections. Does not wait. Does nothing if the channel is
        closed already."""
        result = _raw.penstock_channel_close(self._handle)
        if result not in (OK, E_ALREADY):
            raise library_error(result, "the channel can't be closed")
        # So that the interceptors are let go although the channel is still there.
        while self._registered:
            number = self._registered.pop()
            _raw.penstock_registration_remove(number, None)
            self._kept.pop(-number, None)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<penstock.Channel {self.target!r}>"


def _pem(text: Union[str, bytes, None]) -> Tuple[Optional[bytes], int]:
    """A text in PEM form as C gets it: its bytes, and their number."""
    data = text.encode() if isinstance(text, str) else text
    return data, 0 if data is None else len(data)


def _json_default(value: object) -> object:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"options can't hold a {type(value).__name__}")
