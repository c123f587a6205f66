"""Channels whose calls are made in blocking style."""

from __future__ import annotations

import contextlib
import time
from contextvars import Context
from ctypes import byref, c_int32
from typing import Any, Iterable, Mapping, Optional, Union

from .. import _raw
from .._calls.blocking import begin, unary
from .._calls.caller import Caller
from .._calls.encoding import Codec
from .._calls.ends import Callbacks, callbacks
from .._calls.keywords import Interceptors
from .._calls.line import Line
from .._calls.options import CallOptions
from .._calls.wait import Waiters
from .._handles import host
from .._handles.arguments import milliseconds
from .._handles.ctrl_c import call
from .._handles.errors import ClosedError, TimedOutError, library_error
from .._handles.verdict import Connectivity, Kind
from .._raw.constants import E_CLOSED, E_INTERRUPTED, E_TIMEOUT, OK
from .base import TLS, BaseChannel
from .compressor import Compressor
from .connector import ConnectFunction, Connector
from .picker import Picker
from .resolver import Resolver
from .runtime import Runtime, default_runtime
from .verifier import Verifier


class Channel(BaseChannel, Caller):
    """A target, its connections and its interceptors. As a context manager it closes itself at the end of the
    with block.

    ``target``: ``host:port``, ``dns:///host:port``, ``ipv4:1.2.3.4:5,...``, ``ipv6:[::1]:5,...``, ``unix:/path``,
    ``unix-abstract:name``, ``vsock:cid:port``, ``passthrough:///host:port``, or a URL: ``https://host:port/prefix``
    or ``http://host:port/prefix``.
    ``tls``: True (roots of the system), False (cleartext), a mapping with ``roots_pem``, ``roots_file``,
    ``certificate_chain_pem``, ``certificate_chain_file``, ``private_key_pem``, ``private_key_file``,
    ``server_name`` (a name or a list of names), ``verify``, ``crls_pem``, ``crls_file``, ``spki_pins``,
    ``spiffe_ids``, ``session_resumption``, ``min_version``, ``ciphers``, ``key_log_file``, or None: the library's
    default, which is TLS except for unix sockets and ``http://``.
    ``options``: ``protocol`` (``"grpc"``, ``"grpc-web"``, ``"grpc-web-text"`` or ``"connect"``), ``http``
    (``"auto"``, ``"2"`` or ``"1.1"``), ``max_get_url_bytes``, ``http1_max_connections``, ``http1_idle_timeout_ms``,
    ``authority``, ``proxy``, ``no_proxy``, ``local_address``, ``bind_interface``, ``socket_options``,
    ``content_subtype``, ``user_agent``, ``default_deadline_ms``,
    ``max_receive_message_bytes``, ``max_send_message_bytes``, ``max_header_list_bytes``, ``connect_timeout_ms``,
    ``wait_for_ready``, ``service_config``, ``retries``, ``replay_bytes``, ``channel_replay_bytes``,
    ``max_connections_per_subchannel``, ``max_connections``, ``max_pending_calls``, ``max_buffered_bytes``,
    ``health_checks``, ``idle_timeout_ms``, ``max_connection_age_ms``, ``initial_backoff_ms``, ``max_backoff_ms``,
    ``backoff_multiplier``, ``backoff_jitter``, ``dns_srv``, ``min_resolve_interval_ms``, ``resolve_interval_ms``,
    ``silence_event_ms``, ``slow_callback_ms``, ``keepalive_time_ms``, ``keepalive_timeout_ms``,
    ``keepalive_without_calls``, ``compression``, ``compression_min_bytes``, ``initial_stream_window_bytes``,
    ``initial_connection_window_bytes``, ``max_window_bytes``, ``tie_order``, ``trace``: see docs/options.md.
    ``interceptors``: each an interceptor, or (interceptor, priority). ``runtime``: a `Runtime`, instead of the
    default one. ``resolver``: a `Resolver` that finds the addresses, instead of a look-up of the target's name.
    ``connector``: opens the sockets of all connections. It is a `Connector`, or a function that gets a `Connecting`
    and returns a connected socket, its descriptor, or None, so that the library connects. The function may wait: it
    runs on a thread of its own for each connection, or, if it is `async def`, as a task of the channel's loop.
    ``verifier``: a function that checks the certificates of each server of TLS, when the library's own checks have
    passed. It gets a `Verification`, and returns True if the server is accepted, or a text that says why it is not.
    An exception refuses the server, too. It must not wait.
    ``picker``: a function that chooses the server of each attempt: see `set_picker`. ``codec``: a `Codec` that
    replaces the serializers of all methods, such as ``ProtobufJSONCodec()``. ``compressors``: each a `Compressor`, a
    compression of the program's own, which answers may have, and requests by the option or keyword ``compression``.

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
        connector: Union[Connector, ConnectFunction, None] = None,
        verifier: Optional[Verifier] = None,
        picker: Optional[Picker] = None,
        codec: Optional[Codec] = None,
        compressors: Iterable[Compressor] = (),
    ) -> None:
        super().__init__(
            target,
            tls=tls,
            options=options,
            interceptors=interceptors,
            runtime=default_runtime() if runtime is None else runtime,
            resolver=resolver,
            connector=connector,
            verifier=verifier,
            picker=picker,
            codec=codec,
            compressors=compressors,
        )
        self._ended = callbacks()
        # Of the greenlets that wait for a state.
        self._gates: Optional[host.Gates] = None

    @property
    def _waiters(self) -> Waiters:
        return self._runtime._waiters

    @property
    def _callbacks(self) -> Callbacks:
        return self._ended

    def _start(self, method: bytes, kind: Kind, options: CallOptions) -> Line:
        make = _raw.penstock_channel_call
        return begin(self._waiters, kind, make, self._handle, method, int(kind), options.handle)

    def _unary(self, method: bytes, options: CallOptions, data: bytes) -> Optional[int]:
        if self._has_functions or self._runtime._has_functions or host.hub() is not None:
            return None
        return unary(self._waiters, self._handle, method, options, data)

    def wait_connectivity(self, state: Connectivity, timeout: Optional[float] = None) -> Connectivity:
        """Waits until the channel's state differs from ``state``, up to ``timeout`` seconds (None: without limit),
        and returns the new state. It does not make the channel connect.

        TimedOutError: the state is still ``state``. WouldDeadlockError: in a callback."""
        if host.hub() is not None:
            return self._seen_connectivity(state, timeout)
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

    def _seen_connectivity(self, state: Connectivity, timeout: Optional[float]) -> Connectivity:
        """The wait of `wait_connectivity` in a greenlet."""
        until = None if timeout is None else time.monotonic() + timeout
        if state is self.connectivity is Connectivity.SHUTDOWN:
            raise ClosedError(E_CLOSED, "the channel is closed")

        def other() -> Optional[Connectivity]:
            now = self.connectivity
            return None if now is state else now

        gates = self._state_gates()
        while True:
            found = gates.wait(other, None if until is None else until - time.monotonic())
            if found is not None:
                return found
            if until is not None and time.monotonic() >= until:
                raise TimedOutError(E_TIMEOUT, f"the channel's state is still {Connectivity(state).name}")

    def _state_gates(self) -> host.Gates:
        """Gates that each new state opens, by one watch, which refers to them only and ends with the channel."""
        if self._gates is None:
            gates = host.Gates()
            # If the channel has just been closed, nobody waits.
            with contextlib.suppress(ClosedError):
                Context().run(self.watch_connectivity, lambda now: gates.open())
            self._gates = gates
        return self._gates

    def close_gracefully(self, timeout: Optional[float] = None) -> None:
        """Closes the channel, as `close` does, when its last call has ended, at the latest after ``timeout`` seconds
        (None: without limit). Until then running calls go on with their interceptors, and no call can be made. Does
        not wait: `connectivity` is SHUTDOWN when the channel has closed. Does nothing if the channel is closed or
        closes already."""
        self._close_gracefully(timeout)

    def close(self) -> None:
        """Ends every call with CANCELLED and closes the connections. Does not wait. Does nothing if the channel is
        closed already."""
        self._close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<penstock.Channel {self.target!r}>"
