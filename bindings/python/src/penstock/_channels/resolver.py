"""Resolvers, which find the addresses of a channel's target in the program's own way."""

from __future__ import annotations

import json
import os
import threading
from contextvars import copy_context
from ctypes import byref, c_void_p, sizeof
from typing import Any, Mapping, Optional

from .. import _raw
from .._handles.arguments import c_string
from .._handles.context import Scoped, run
from .._handles.ctrl_c import recover
from .._handles.errors import StateError, check_with
from .._handles.objects import Objects, forget, own, registry
from .._handles.reports import report
from .._raw.constants import E_STATE

# Guards snapshots that are pushed before the resolver has a channel. May be taken again by a signal handler or a
# destructor, which run in the middle of anything.
_lock = threading.RLock()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Resolver:
    """Finds the addresses of one channel, ``Channel(target, resolver=...)``, and pushes them whenever they change. A
    subclass may override `resolve` and `stop`, which tell it when addresses are needed.

        class Static(penstock.Resolver):
            def resolve(self):
                self.push({"addresses": [{"address": "ipv4:127.0.0.1:50051"}]})
    """

    _handle: Optional[int] = None
    _early: Optional[str] = None

    def resolve(self) -> None:
        """Called when addresses are wanted: the channel leaves idle, has lost a connection, or can't connect. It
        runs on the thread that drives the runtime, so it must return soon; it may start a thread that finds the
        addresses."""

    def stop(self) -> None:
        """Called when no addresses are wanted until the next `resolve`: the channel is idle, or closes."""

    def push(self, snapshot: Mapping[str, Any]) -> None:
        """Pushes a whole snapshot in one step, from any thread. It is either ``{"addresses": [...]}``, each
        ``{"address": "ipv4:192.0.2.1:443"}`` with a ``weight`` (1) and ``attributes`` (a mapping of strings) if it
        has them, perhaps with a ``"service_config"``; or ``{"error": "why there are none"}``, which keeps the
        addresses that are known.

        InvalidArgumentError: the snapshot is wrong; its ``path`` names the wrong part, and the earlier snapshot still
        holds.
        ClosedError: the channel has closed. Before there is a channel, the latest snapshot is kept for it.
        """
        text = json.dumps(snapshot, default=_json_default)
        with _lock:
            handle = self._handle
            if handle is None:
                self._early = text
        if handle is not None:
            _push(handle, text)

    def _join(self, channel: int, kept: Objects) -> None:
        if self._handle is not None:
            raise StateError(E_STATE, "the resolver has a channel already")
        functions = _raw.penstock_resolver_functions(sizeof(_raw.penstock_resolver_functions))
        # C refers to the resolver, by its number, until the channel has closed.
        functions.user_data = registry.add(_Joined(self, kept))
        functions.finalizer = forget
        functions.resolve = _resolve
        functions.stop = _stop
        handle, error = c_void_p(), c_void_p()
        result = _raw.penstock_channel_set_resolver(channel, byref(functions), byref(handle), byref(error))
        check_with(result, error)
        assert handle.value is not None
        owned: int = own(self, _raw.penstock_resolver_release, handle.value)
        with _lock:
            # The early snapshot is pushed before another thread sees the handle, so it can't replace a later one.
            early, self._early = self._early, None
            self._handle = owned
            if early is not None:
                _push(owned, early)


def _push(handle: int, text: str) -> None:
    error = c_void_p()
    check_with(_raw.penstock_resolver_push(handle, c_string(text, "the snapshot"), byref(error)), error)


def _json_default(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a snapshot can't have {value!r}")


# ---- Functions that C calls: none of them lets an exception reach C ----


class _Joined(Scoped):
    """The registry's object for a resolver that has a channel."""

    def __init__(self, resolver: Resolver, kept: Objects) -> None:
        super().__init__(copy_context(), kept)
        self.resolver = resolver

    def tell(self, name: str) -> None:
        try:
            run(self.context, getattr(self.resolver, name))
        except BaseException as error:
            run(self.context, report, type(self.resolver).__name__, name, error)


def _call_resolve(number: Optional[int]) -> None:
    joined = registry.get(number)
    if isinstance(joined, _Joined):
        joined.tell("resolve")


def _call_stop(number: Optional[int]) -> None:
    joined = registry.get(number)
    if isinstance(joined, _Joined):
        joined.tell("stop")


recover(_call_resolve, lambda given: _call_resolve(given["number"]))
recover(_call_stop, lambda given: _call_stop(given["number"]))
_resolve = _raw.penstock_resolver_function(_call_resolve)
_stop = _raw.penstock_resolver_function(_call_stop)
