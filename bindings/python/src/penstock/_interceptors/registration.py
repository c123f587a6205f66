"""Registrations: interceptors on a channel, a runtime or the options of one call."""

from __future__ import annotations

import inspect
from contextvars import copy_context
from ctypes import byref, c_uint64, c_void_p, sizeof
from typing import Any, Callable, Dict, Iterable, List, Optional, Protocol, Tuple, Union

from .. import _raw
from .._calls.keywords import Interceptors
from .._handles import host
from .._handles.arguments import c_string, milliseconds, whole_number
from .._handles.errors import StateError, check, check_with
from .._handles.objects import Objects, forget, registry
from .._handles.verdict import Kind, Kinds, Level, level_of
from .._raw import constants as c
from .completion import CALLBACKS, CompletionInterceptor, set_callbacks
from .executor import address, chosen
from .hop import Registered
from .interceptor import Native, check_interceptor, function_of, overridden
from .trampolines import (
    connection_trampoline,
    create_trampoline,
    destroy_trampoline,
    intercept_trampoline,
    trampolines,
)

Methods = Union[str, Iterable[str], None]


class Tasks(Protocol):
    """Runs `async def` callbacks as tasks of an event loop."""

    def callbacks(self, name: str, methods: Dict[str, Callable[[Any], Any]]) -> Dict[str, Callable[[Any], Any]]:
        """The callbacks ``methods`` of the interceptor ``name``, with functions for C in place of those that are
        async."""


class Scope(Protocol):
    """An object on which interceptors can be registered: a channel, a runtime, or the options of a call."""

    # Whether an interceptor at the object level has been registered, so that calls need codecs.
    _has_object_level: bool
    # Whether an interceptor has been registered that is synchronous, or may be: its function runs on the thread that
    # waits for the call.
    _has_functions: bool
    # Whether an interceptor has been registered whose callbacks are Python functions, so that calls need a context.
    _has_callbacks: bool
    # The runner of `async def` callbacks; None: they are refused.
    _tasks: Optional[Tasks]

    @property
    def _kept(self) -> Optional[Objects]:
        """The objects that the scope keeps, see `Keeper`: those of its interceptors to which C refers; and, under the
        negative numbers of their registrations, interceptors that have no such objects of the scope. None: it keeps
        nothing."""

    def _registry_functions(self) -> Tuple[str, int]:
        """The prefix of the scope's C functions, and the scope's handle."""

    def _has_registered(self, number: int) -> None:
        """Called when a registration with this number has been made on the scope."""

    def _has_removed(self, number: int) -> None:
        """Called when the registration with this number has been removed from the scope."""


# The default of the arguments that `Registration.replace` leaves unchanged.
_UNCHANGED: Any = object()
# How many milliseconds one wait lasts, so that Python can handle signals in between.
_WAIT_MS = 100


class Registration:
    """An interceptor that is registered. Use this object to remove or replace the interceptor, or to change its
    priority and its filter.

    A change holds for calls that are made afterwards.
    """

    def __init__(
        self,
        scope: Scope,
        interceptor: object,
        priority: int,
        methods: Methods,
        kinds: Kinds,
        name: Optional[str],
        hold_bytes: int,
        level: Optional[Level] = None,
        per_attempt: Optional[bool] = None,
        replaces: Optional[Registration] = None,
    ) -> None:
        check_interceptor(interceptor)
        self.interceptor = interceptor
        self.name = name or getattr(interceptor, "name", "") or type(interceptor).__name__
        self._priority = whole_number(priority, "priority", -(2**31), 2**31 - 1)
        self._methods = _patterns(methods)
        self._kinds = _mask(kinds)
        hold_bytes = hold_bytes or getattr(interceptor, "hold_bytes", 0)
        self._hold_bytes = whole_number(hold_bytes, "hold_bytes", 0, 2**63 - 1)
        self._level = Level(level_of(interceptor) if level is None else level)
        self._per_attempt = bool(getattr(interceptor, "per_attempt", False) if per_attempt is None else per_attempt)
        self._replaces = replaces
        self._context = copy_context()
        self._id = 0
        self._replay_bytes = whole_number(getattr(interceptor, "replay_bytes", 0), "replay_bytes", 0, 2**63 - 1)
        self._max_restarts = _restarts(interceptor)
        self._headers_wait = _headers_mask(getattr(interceptor, "headers_wait", None))
        self._removed = False
        # The list that contains this registration until it is removed.
        self._siblings: Optional[List[Registration]] = None
        # The channel or runtime; None in a forked child, until there is a runtime on which the interceptor is
        # registered again.
        self._scope: Optional[Scope] = None
        self._register(scope)

    def _fill(self, table: Any, methods: Any, scope: Scope) -> None:
        """Sets the fields that the tables of all styles have, the user data last: only C releases it."""
        table.struct_size = sizeof(table)
        table.name = c_string(self.name, "a name")
        table.methods = self._methods
        table.kinds = self._kinds
        table.hold_bytes = self._hold_bytes
        table.replay_bytes = self._replay_bytes
        table.max_restarts = self._max_restarts
        table.finalizer = forget
        table.user_data = registry.add(Registered(self.name, methods, register_all, self._context, scope._kept))

    def _sync_table(self, function: Callable[[Any], Any], scope: Scope) -> _raw.penstock_interceptor:
        # Set before a call can have the interceptor.
        scope._has_functions = True
        sync = _raw.penstock_sync_interceptor()
        sync.per_attempt = self._per_attempt
        sync.intercept = intercept_trampoline
        self._fill(sync, {"intercept": function}, scope)
        table = _converted(sync, _raw.penstock_sync_interceptor_table)
        table.headers_wait = self._headers_wait
        return table

    def _native_table(self, interceptor: Native) -> _raw.penstock_interceptor:
        table = _raw.penstock_interceptor(struct_size=sizeof(_raw.penstock_interceptor))
        name = c_string(self.name, "a name")
        interceptor._fill(table)
        table.name = name
        table.methods = self._methods or table.methods
        table.kinds = self._kinds or table.kinds
        table.hold_bytes = self._hold_bytes or table.hold_bytes
        return table

    def _completion_table(self, interceptor: CompletionInterceptor, scope: Scope) -> _raw.penstock_interceptor:
        for callback in ("create", *CALLBACKS):
            if inspect.iscoroutinefunction(getattr(interceptor, callback)):
                raise TypeError(f"{type(interceptor).__name__}.{callback} is async, which is not supported yet")
        given = _raw.penstock_async_interceptor()
        given.headers_wait = self._headers_wait
        set_callbacks(given, interceptor, self._per_attempt)
        self._fill(given, interceptor, scope)
        return _converted(given, _raw.penstock_async_interceptor_table)

    def _table(self, scope: Scope) -> _raw.penstock_interceptor:
        if isinstance(self.interceptor, Native):
            if self.interceptor.may_have_function:
                scope._has_functions = True
            return self._native_table(self.interceptor)
        if isinstance(self.interceptor, CompletionInterceptor):
            return self._completion_table(self.interceptor, scope)
        function = function_of(self.interceptor)
        if function is not None:
            return self._sync_table(function, scope)
        methods = overridden(self.interceptor)
        if any(map(inspect.iscoroutinefunction, methods.values())):
            methods = self._with_tasks(methods, scope)
        table = _raw.penstock_interceptor()
        table.headers_wait = self._headers_wait
        if "create" in methods or "destroy" in methods:
            table.create = create_trampoline
            table.destroy = destroy_trampoline
        if "create" in methods:
            # It ends the calls whose `create` has failed.
            table.on_start = trampolines["on_start"]
        for callback, trampoline in trampolines.items():
            if callback in methods:
                setattr(table, callback, trampoline)
        if "on_connection" in methods:
            table.on_connection = connection_trampoline
        self._fill(table, methods, scope)
        return table

    def _with_tasks(self, methods: Dict[str, Callable[[Any], Any]], scope: Scope) -> Dict[str, Callable[[Any], Any]]:
        name = type(self.interceptor).__name__
        if scope._tasks is None:
            raise TypeError(
                f"{name} has async callbacks, which only channels of penstock.aio and their calls can have"
            )
        if any(chosen(self.interceptor)):
            raise TypeError(f"{name} has async callbacks, which run on the event loop, so it can have no executors")
        return scope._tasks.callbacks(self.name, methods)

    def _register(self, scope: Scope) -> None:
        number, error = c_uint64(), c_void_p()
        prefix, handle = scope._registry_functions()
        outbound, inbound = map(address, chosen(self.interceptor))
        # Set before a call can have the interceptor.
        if not isinstance(self.interceptor, Native):
            scope._has_callbacks = True
        if self._level is not Level.BYTES and getattr(self.interceptor, "needs_codec", True):
            scope._has_object_level = True
        # From here on the library owns the user data, even if the registration fails.
        table = self._table(scope)
        table.level, table.per_attempt = self._level, self._per_attempt
        if outbound or inbound:
            table.outbound_executor, table.inbound_executor = outbound, inbound
        old, self._replaces = self._replaces, None
        if old is None:
            add = getattr(_raw, f"{prefix}_add_interceptor")
            result = add(handle, byref(table), self._priority, byref(number), byref(error))
        else:
            result = _raw.penstock_registration_replace(old._id, byref(table), byref(number), byref(error))
        check_with(result, error)
        self._id = number.value
        self._scope = scope
        scope._has_registered(self._id)
        if isinstance(self.interceptor, Native) and scope._kept is not None:
            # It may keep Python functions to which C refers.
            scope._kept[-self._id] = self.interceptor

    @property
    def id(self) -> int:
        """The number of the registration: never 0, never used again within the process."""
        return self._id

    @property
    def priority(self) -> int:
        """The priority. A new value holds for calls that are made afterwards."""
        return self._priority

    @priority.setter
    def priority(self, priority: int) -> None:
        whole_number(priority, "priority", -(2**31), 2**31 - 1)
        self._change(_raw.penstock_registration_set_priority, priority)
        self._priority = priority

    def _change(self, function: Callable[..., int], *values: Any) -> None:
        if self._scope is not None:
            error = c_void_p()
            check_with(function(self._id, *values, byref(error)), error)

    @property
    def methods(self) -> Optional[Tuple[str, ...]]:
        """The patterns of methods whose calls meet the interceptor; None for all. Can be set, as in
        `Channel.add_interceptor`."""
        if self._methods is None:
            return None
        return tuple(part.strip() for part in self._methods.decode().split(","))

    @methods.setter
    def methods(self, methods: Methods) -> None:
        patterns = _patterns(methods)
        self._change(_raw.penstock_registration_set_filter, patterns, self._kinds)
        self._methods = patterns

    @property
    def kinds(self) -> Optional[Tuple[Kind, ...]]:
        """The kinds of calls that meet the interceptor; None for all. Can be set, as in
        `Channel.add_interceptor`."""
        return tuple(kind for kind in Kind if self._kinds & 1 << kind) if self._kinds else None

    @kinds.setter
    def kinds(self, kinds: Kinds) -> None:
        mask = _mask(kinds)
        self._change(_raw.penstock_registration_set_filter, self._methods, mask)
        self._kinds = mask

    @property
    def level(self) -> Level:
        """The level: `Level.BYTES`, `Level.OBJECT` or `Level.BOTH`."""
        return self._level

    @property
    def per_attempt(self) -> bool:
        """Whether each attempt has its own hop at the bytes level, below the hops that a call has only once."""
        return self._per_attempt

    def replace(
        self,
        interceptor: object,
        *,
        methods: Methods = _UNCHANGED,
        kinds: Kinds = _UNCHANGED,
        name: Optional[str] = None,
        hold_bytes: int = _UNCHANGED,
        level: Optional[Level] = None,
        per_attempt: Optional[bool] = None,
    ) -> Registration:
        """Replaces this interceptor by ``interceptor``, at the same place, and returns the new registration. The
        change is one step: each call meets one of the two, never both or none. This registration is then removed.
        ``methods``, ``kinds`` and ``hold_bytes`` keep their values unless they are given; ``level``, ``per_attempt``
        and the name are those of the new interceptor.

        NotFoundError: it has been removed. StateError: in a forked child that has no default runtime yet."""
        if self._scope is None:
            raise StateError(c.E_STATE, "the interceptor is not registered now")
        fresh = Registration(
            self._scope,
            interceptor,
            self._priority,
            self.methods if methods is _UNCHANGED else methods,
            self.kinds if kinds is _UNCHANGED else kinds,
            name,
            self._hold_bytes if hold_bytes is _UNCHANGED else hold_bytes,
            level,
            per_attempt,
            replaces=self,
        )
        self._scope._has_removed(self._id)
        self._removed = True
        if self._siblings is not None:
            fresh._siblings = self._siblings
            self._siblings[self._siblings.index(self)] = fresh
        return fresh

    def wait_removed(self, timeout: Optional[float] = None) -> bool:
        """Waits until the last call that has the interceptor has ended, so that the library no longer uses it. The
        interceptor must have been removed or replaced before, or its channel or runtime freed. Returns False if
        ``timeout`` seconds (None: without limit) have passed.

        StateError: the interceptor is still registered. WouldDeadlockError: called in a callback."""
        hub = host.hub()
        if hub is not None:
            result = host.eventually(hub, lambda: self._wait_removed(0), timeout, c.E_TIMEOUT)
            return self._is_removed(result)
        left = None if timeout is None else milliseconds(timeout)
        while True:
            slice_ms = _WAIT_MS if left is None else min(left, _WAIT_MS)
            if self._is_removed(self._wait_removed(slice_ms)):
                return True
            if left is not None:
                left -= slice_ms
                if left <= 0:
                    return False

    def _wait_removed(self, wait_ms: int) -> int:
        return int(_raw.penstock_registration_wait_removed(self._id, wait_ms))

    def _is_removed(self, result: int) -> bool:
        if result == c.E_TIMEOUT:
            return False
        check(result, "the interceptor is still registered" if result == c.E_STATE else "")
        return True

    def remove(self) -> None:
        """Removes the interceptor: calls that are made after `remove` has returned do not meet it. A second `remove`
        does nothing."""
        if self._removed:
            return
        if self._scope is not None:
            self._change(_raw.penstock_registration_remove)
            self._scope._has_removed(self._id)
        self._removed = True
        if self._siblings is not None:
            self._siblings.remove(self)

    def __repr__(self) -> str:
        return f"<Registration {self._id} of {self.name!r}, priority {self._priority}>"


class Registering:
    """The base of channels and runtimes: programs register interceptors on them, at any time."""

    # See `Scope`. A picker of a channel counts as a callback.
    _has_object_level = False
    _has_functions = False
    _has_callbacks = False
    _tasks: Optional[Tasks] = None

    def add_interceptor(
        self: Scope,
        interceptor: object,
        priority: int = 0,
        methods: Methods = None,
        kinds: Kinds = None,
        name: Optional[str] = None,
        hold_bytes: int = 0,
        level: Optional[Level] = None,
        per_attempt: Optional[bool] = None,
    ) -> Registration:
        """Registers ``interceptor`` for the calls that are made from now on, of this channel or of every channel of
        this runtime.

        Of two interceptors at the same level, the one with the higher ``priority`` is called earlier on the way out
        and later on the way in; interceptors with equal priority keep the order of registration, unless the option
        ``tie_order`` reverses it. ``methods``: patterns, each a whole method or a beginning followed by one star;
        None is all. ``kinds``: kinds of calls; None is all. ``name``: the name in error messages and lists, instead
        of the interceptor's own. ``hold_bytes``: how many message bytes HOLD may park per call and lane; 0 is the
        interceptor's own attribute of this name, or 65536. ``level``, ``per_attempt``: the interceptor's place
        (`Level`), instead of its own attributes of these names.
        """
        return Registration(self, interceptor, priority, methods, kinds, name, hold_bytes, level, per_attempt)


def register_all(scope: Scope, interceptors: Interceptors) -> List[Registration]:
    """Registers the interceptors of ``interceptors=``: each an interceptor, or (interceptor, priority)."""
    registrations = []
    for item in interceptors:
        interceptor, priority = item if isinstance(item, tuple) else (item, 0)
        registrations.append(Registration(scope, interceptor, priority, None, None, None, 0))
    return registrations


def _converted(given: Any, convert: Callable[..., int]) -> _raw.penstock_interceptor:
    """The ordinary table that the C function ``convert`` makes of ``given``, the table of another style."""
    table, error = _raw.penstock_interceptor(), c_void_p()
    table.struct_size = sizeof(table)
    check_with(convert(byref(given), byref(table), byref(error)), error)
    # C has copied the pointers of `given`, which is freed on return, so the table has to keep the strings.
    table.name, table.methods = given.name, given.methods
    return table


def _restarts(interceptor: object) -> int:
    """How often an interceptor may restart a call. 0, without limit, is the default of a synchronous interceptor, and
    only for it."""
    least = 0 if getattr(interceptor, "intercept", None) is not None else 1
    return whole_number(getattr(interceptor, "max_restarts", least), "max_restarts", least, 2**63 - 1)


def _patterns(methods: Methods) -> Optional[bytes]:
    if methods is None:
        return None
    return c_string(methods if isinstance(methods, str) else ",".join(methods), "methods")


def _headers_mask(kinds: Kinds) -> int:
    """The value for ``headers_wait``. Unlike a filter it may be empty."""
    if kinds is None or isinstance(kinds, Kind):
        return _mask(kinds)
    chosen = tuple(kinds)
    return _mask(chosen) if chosen else c.HEADERS_PASS


def _mask(kinds: Kinds) -> int:
    if kinds is None:
        return 0
    chosen: Iterable[Kind] = (kinds,) if isinstance(kinds, Kind) else kinds
    mask = 0
    for kind in chosen:
        mask |= 1 << Kind(kind)
    if mask == 0:
        raise ValueError("kinds is empty: name at least one kind of call, or use None for all")
    return mask
