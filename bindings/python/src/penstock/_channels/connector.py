"""Connectors, which open the sockets of a channel's connections in the program's own way."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import socket
import sys
from contextvars import copy_context
from ctypes import byref, c_size_t, c_void_p, sizeof, string_at
from typing import Any, Awaitable, Callable, Dict, Optional, Tuple, Union

from .. import _raw
from .._handles import host
from .._handles.arguments import c_string
from .._handles.context import Scoped, run
from .._handles.ctrl_c import recover
from .._handles.errors import AlreadyError, GoneError, InvalidArgumentError, LibraryError, check, check_with
from .._handles.objects import Objects, Uncopied, forget, own, registry
from .._handles.reports import report, tell
from .._interceptors.request import text_of

# A connected socket, or anything else with `fileno` and `close`, such as trio's; or the number of a descriptor. The
# connection is the library's from then on.
Connected = Union[socket.socket, int]


class Connecting(Uncopied):
    """A connection for which a channel wants a socket. It is answered once, by `done`, `decline` or `fail`, from any
    thread; if it is dropped without an answer, the attempt to connect fails."""

    __slots__ = ("__weakref__", "_handle", "_number", "address", "target")

    def __init__(self, handle: int) -> None:
        self._number = handle
        self._handle = own(self, _raw.penstock_connecting_release, _raw.penstock_connecting_retain(handle))
        #: The address to connect to, such as ``192.0.2.1:443``, ``[::1]:443`` or ``unix:/path``: in a channel with a
        #: proxy the proxy's.
        self.address: str = text_of(_raw.penstock_connecting_address(handle))
        #: The channel's target, as the program wrote it.
        self.target: str = text_of(_raw.penstock_connecting_target(handle))

    def __eq__(self, other: object) -> bool:
        """Whether both stand for the same connection."""
        return isinstance(other, Connecting) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    @property
    def sockaddr(self) -> Tuple[int, Any]:
        """The family of the address, and the address as ``socket.connect`` takes it:
        ``(socket.AF_INET, ("192.0.2.1", 443))``."""
        length = c_size_t()
        data = string_at(_raw.penstock_connecting_sockaddr(self._handle, byref(length)), length.value)
        return _sockaddr(data)

    def done(self, connected: Connected) -> None:
        """Gives the connected socket, which is closed here, or its descriptor: the library owns the connection.

        InvalidArgumentError: it is no connected stream socket; another answer may follow. AlreadyError: there was an
        answer before. GoneError: nobody waits for the socket any more. After an error it is still the program's.
        TypeError: it is a socket of TLS, which the library begins itself."""
        if isinstance(connected, int):
            self._give(connected)
            return
        ssl = sys.modules.get("ssl")
        if ssl is not None and isinstance(connected, ssl.SSLSocket):
            raise TypeError("TLS is the library's: give it the socket below, and the channel the option tls")
        number = connected.fileno()
        # The library gets a descriptor of its own: one that both own would be closed twice if a signal handler raised
        # between the two steps.
        own_number = os.dup(number) if number >= 0 else number
        try:
            self._give(own_number)
        except LibraryError:
            if own_number >= 0:
                os.close(own_number)
            raise
        connected.close()

    def _give(self, number: int) -> None:
        error = c_void_p()
        check_with(_raw.penstock_connecting_socket(self._handle, number, byref(error)), error)

    def decline(self) -> None:
        """Lets the library open the socket itself. AlreadyError, GoneError: as for `done`."""
        check(_raw.penstock_connecting_decline(self._handle))

    def fail(self, message: str = "") -> None:
        """Says in words why there is no connection. AlreadyError, GoneError: as for `done`."""
        check(_raw.penstock_connecting_fail(self._handle, c_string(message, "a message")))


def _sockaddr(data: bytes) -> Tuple[int, Any]:
    family = int.from_bytes(data[:2], sys.byteorder)
    if family == socket.AF_INET:
        return family, (socket.inet_ntop(family, data[4:8]), int.from_bytes(data[2:4], "big"))
    if family == socket.AF_INET6:
        scope = int.from_bytes(data[24:28], sys.byteorder)
        host_name = socket.inet_ntop(family, data[8:24])
        return family, (host_name, int.from_bytes(data[2:4], "big"), int.from_bytes(data[4:8], "big"), scope)
    if family == socket.AF_UNIX:
        # A path ends with a NUL; a name of the abstract namespace begins with one.
        return family, data[2:] if data[2:3] == b"\0" else data[2:].split(b"\0")[0].decode("utf-8", "surrogateescape")
    # A vsock: its machine and its port.
    return family, (int.from_bytes(data[8:12], sys.byteorder), int.from_bytes(data[4:8], sys.byteorder))


class Connector:
    """Opens the sockets of a channel's connections, ``Channel(target, connector=...)``. A subclass overrides
    `connect`, and perhaps `cancel`. Both run on the thread that drives the runtime, so they must return soon; a
    function that may wait is simpler as a connector (see `Channel`).

        class Prepared(penstock.Connector):
            def connect(self, connecting):
                connecting.done(sockets.pop())
    """

    def connect(self, connecting: Connecting) -> None:
        """Called whenever the channel wants a connection. It answers by ``connecting``, now or later. An exception
        ends the attempt to connect, with its words."""
        connecting.decline()

    def cancel(self, connecting: Connecting) -> None:
        """Called when nobody waits for an answer any more: the connect timeout has passed, or the channel has closed.
        ``connecting`` equals the one that `connect` had."""


# A function that returns a connected socket or its descriptor, or None, so that the library opens the socket. It may
# wait: it runs on a thread of its own, in a greenlet, or, for `async def`, as a task of the channel's event loop,
# which is cancelled when nobody waits for it any more.
ConnectFunction = Callable[[Connecting], Union[Connected, Awaitable[Optional[Connected]], None]]


def set_connector(
    channel: int, connector: Union[Connector, ConnectFunction], kept: Objects, begin: Optional[Callable[[Any], Any]]
) -> None:
    """Lets C call ``connector``. ``begin``: makes a task of a coroutine; None: the channel has no event loop."""
    if isinstance(connector, Connector):
        if _is_async(connector.connect) or _is_async(connector.cancel):
            raise TypeError("the functions of a Connector can't be async: give an async function as the connector")
    elif not callable(connector):
        raise TypeError(f"a Connector, or a function that gets a Connecting, not {connector!r}")
    else:
        connector = _Waiting(connector, begin)
    functions = _raw.penstock_connector_functions(sizeof(_raw.penstock_connector_functions))
    functions.user_data = registry.add(_Joined(connector, kept))
    functions.finalizer = forget
    functions.connect = _connect
    functions.cancel = _cancel
    error = c_void_p()
    check_with(_raw.penstock_channel_set_connector(channel, byref(functions), byref(error)), error)


def _is_async(function: Any) -> bool:
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


class _Waiting(Connector):
    """A connector whose function may wait."""

    def __init__(self, function: ConnectFunction, begin: Optional[Callable[[Any], Any]]) -> None:
        self._function = function
        self._begin = begin if _is_async(function) else None
        self._tasks: Dict[Connecting, Any] = {}
        if begin is None and _is_async(function):
            raise TypeError("an async function as a connector needs a channel of penstock.aio")

    def connect(self, connecting: Connecting) -> None:
        if self._begin is not None:
            work = self._wait(connecting)
            try:
                task = self._begin(work)
            except BaseException:
                work.close()
                raise
            self._tasks[connecting] = task
            task.add_done_callback(lambda _: self._tasks.pop(connecting, None))
        else:
            host.spawn(functools.partial(copy_context().run, self._run, connecting), "penstock connector")

    def cancel(self, connecting: Connecting) -> None:
        task = self._tasks.get(connecting)
        if task is not None:
            # A loop that is closed cancels nothing any more.
            with contextlib.suppress(RuntimeError):
                task.cancel()

    def _run(self, connecting: Connecting) -> None:
        try:
            _answer(connecting, self._function(connecting))
        except BaseException as error:
            self._raised(connecting, error)

    async def _wait(self, connecting: Connecting) -> None:
        try:
            _answer(connecting, await self._function(connecting))  # type: ignore[misc]
        except Exception as error:
            self._raised(connecting, error)
        except BaseException as error:
            # Mostly the task's cancellation.
            _failed(connecting, error)
            raise

    def _raised(self, connecting: Connecting, error: BaseException) -> None:
        _failed(connecting, error)
        # That there is no connection is what a connector may find: the calls that fail have its words.
        if not isinstance(error, OSError):
            tell(getattr(self._function, "__name__", type(self._function).__name__), "connect", error)


def _answer(connecting: Connecting, given: Any) -> None:
    if given is None:
        # The function may have answered by itself.
        with contextlib.suppress(AlreadyError, GoneError):
            connecting.decline()
    elif isinstance(given, int) and not isinstance(given, bool):
        try:
            connecting.done(given)
        except (GoneError, InvalidArgumentError) as error:
            # The function has given the number away, so nobody else would close it. What is no socket stays.
            with contextlib.suppress(OSError, ValueError):
                socket.socket(fileno=given).close()
            if not isinstance(error, GoneError):
                raise
    elif hasattr(given, "fileno") and hasattr(given, "close"):
        try:
            connecting.done(given)
        except GoneError:
            given.close()
    elif inspect.iscoroutine(given):
        given.close()
        raise TypeError("the connector returned a coroutine: write it as an async function")
    else:
        raise TypeError(f"the connector returned {given!r}, which is neither a socket, a descriptor nor None")


def _failed(connecting: Connecting, error: BaseException) -> None:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    with contextlib.suppress(AlreadyError, GoneError):
        connecting.fail(text.replace("\0", "").encode("utf-8", "replace").decode())


# ---- Functions that C calls: none of them lets an exception reach C ----


class _Joined(Scoped):
    """The registry's object for a connector that has a channel."""

    def __init__(self, connector: Connector, kept: Objects) -> None:
        super().__init__(copy_context(), kept)
        self.connector = connector


def _call_connect(handle: int, number: Optional[int]) -> None:
    joined: object = None
    try:
        joined = registry.get(number)
        if isinstance(joined, _Joined):
            connecting = Connecting(handle)
            try:
                run(joined.context, joined.connector.connect, connecting)
            except BaseException as error:
                _failed(connecting, error)
                run(joined.context, report, type(joined.connector).__name__, "connect", error)
    except BaseException as error:
        report("connector", "connect", error)


def _call_cancel(handle: int, number: Optional[int]) -> None:
    joined: object = None
    try:
        joined = registry.get(number)
        if isinstance(joined, _Joined):
            try:
                run(joined.context, joined.connector.cancel, Connecting(handle))
            except BaseException as error:
                run(joined.context, report, type(joined.connector).__name__, "cancel", error)
    except BaseException as error:
        report("connector", "cancel", error)


recover(_call_connect, lambda given: None)
recover(_call_cancel, lambda given: None)
_connect = _raw.penstock_connector_function(_call_connect)
_cancel = _raw.penstock_connector_function(_call_cancel)
