"""The part of a channel that blocking and asyncio channels have in common: nothing here waits."""

from __future__ import annotations

import json
from ctypes import byref, c_void_p
from typing import Any, Callable, Coroutine, Dict, Iterable, List, Mapping, Optional, Set, Tuple, Union

from .. import _raw
from .._calls.encoding import Codec
from .._calls.keywords import Interceptors
from .._calls.method import Connected
from .._calls.options import CallOptions
from .._handles.arguments import c_string, milliseconds
from .._handles.errors import check, check_with, library_error
from .._handles.metadata import owned_text
from .._handles.objects import Keeper, Objects, Uncopied
from .._handles.verdict import Connectivity
from .._interceptors.registration import Registering, register_all
from .._raw.constants import E_ALREADY, OK
from .compressor import Compressor, Compressors
from .connector import ConnectFunction, Connector, set_connector
from .picker import Picker, set_picker
from .resolver import Resolver
from .runtime import Runtime
from .verifier import Verifier, set_verifier
from .watch import Changed, watch

TLS = Union[bool, Mapping[str, Any]]


class BaseChannel(Keeper, Registering, Connected, Uncopied):
    """A target, its connections and its interceptors, on a runtime."""

    def __init__(
        self,
        target: str,
        *,
        tls: Optional[TLS] = None,
        options: Optional[Mapping[str, Any]] = None,
        interceptors: Interceptors = (),
        runtime: Runtime,
        resolver: Optional[Resolver] = None,
        connector: Union[Connector, ConnectFunction, None] = None,
        verifier: Optional[Verifier] = None,
        picker: Optional[Picker] = None,
        codec: Optional[Codec] = None,
        compressors: Iterable[Compressor] = (),
    ) -> None:
        self.target = target
        self._encoding = codec
        self._runtime = runtime
        chosen = dict(options or {})
        if tls is not None:
            if "tls" in chosen:
                raise ValueError('TLS is given twice: by tls= and by options["tls"]')
            chosen["tls"] = tls
        text = json.dumps(chosen, default=_json_default)
        self._kept: Objects = {}
        given = Compressors(compressors, self._kept)
        try:
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
            given.join(self._handle)
            self._has_compressors = bool(given)
        finally:
            given.release()
        self._registered: Set[int] = set()
        register_all(self, interceptors)
        if resolver is not None:
            resolver._join(self._handle, self._kept)
        if connector is not None:
            set_connector(self._handle, connector, self._kept, self._begins_tasks)
        if verifier is not None:
            set_verifier(self._handle, verifier, self._kept)
        if picker is not None:
            self.set_picker(picker)

    @property
    def _begins_tasks(self) -> Optional[Callable[[Coroutine[Any, Any, None]], Any]]:
        """Makes a task of a coroutine, and does not refer to the channel. None: the channel has no event loop."""
        return None

    def _registry_functions(self) -> Tuple[str, int]:
        return "penstock_channel", self._handle

    def _has_registered(self, number: int) -> None:
        self._registered.add(number)

    def _has_removed(self, number: int) -> None:
        self._registered.discard(number)
        self._kept.pop(-number, None)

    # ---- Calls ----

    @property
    def _calls_back(self) -> bool:
        return self._has_callbacks or self._has_compressors or self._runtime._has_callbacks

    @property
    def _keeps(self) -> Tuple[Objects, ...]:
        return self._kept, self._runtime._kept

    @property
    def _sees_objects(self) -> bool:
        return self._has_object_level or self._runtime._has_object_level

    def _register(self, options: CallOptions, interceptors: Interceptors) -> None:
        register_all(options, interceptors)

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

    def stats(self, timeout: float = 1.0) -> Dict[str, Any]:
        """The channel's state and figures: ``target``, ``state``, ``policy``, ``name``, ``attempts``, ``throttle``,
        and ``endpoints``, each with its ``connections``. docs/operating.md describes each member.

        TimedOutError: the loop has not answered within ``timeout`` seconds, because a callback does not return:
        `snapshot` names it. ClosedError: the runtime has ended."""
        wait_ms = milliseconds(timeout)
        text = owned_text(lambda handle, out: _raw.penstock_channel_stats_json(handle, wait_ms, out), self._handle)
        view: Dict[str, Any] = json.loads(text)
        return view

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

    def _close_gracefully(self, timeout: Optional[float]) -> None:
        timeout_ms = -1 if timeout is None else milliseconds(timeout)
        result = _raw.penstock_channel_close_gracefully(self._handle, timeout_ms)
        if result not in (OK, E_ALREADY):
            raise library_error(result, "the channel can't be closed")

    def _close(self) -> None:
        result = _raw.penstock_channel_close(self._handle)
        if result not in (OK, E_ALREADY):
            raise library_error(result, "the channel can't be closed")
        # So that the interceptors are let go although the channel is still there.
        while self._registered:
            number = self._registered.pop()
            _raw.penstock_registration_remove(number, None)
            self._kept.pop(-number, None)


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
