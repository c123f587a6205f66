"""The functions that C calls: one for each kind of callback, and none of them ever raises into C."""

from __future__ import annotations

import logging
import sys
import threading
from types import CodeType
from typing import Any, Callable, Dict, Optional, Set

from . import _constants as c
from . import _objects, _raw
from ._hop import Hop, Instance
from ._objects import Raised, forget, registry
from ._reply import EXCEPTION_KEY
from ._status import StatusCode
from ._sync import InterceptedCall, workers
from ._verdict import Verdict

_logger = logging.getLogger("penstock")

SIGNALS = ("on_cancel", "on_demand", "on_sent")
EVENTS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status")
# A verdict that no callback may return: the library ends the call with INTERNAL and names the interceptor.
_INVALID = -1

ExceptionHook = Callable[[str, str, BaseException], object]
_hook: Optional[ExceptionHook] = None


def set_exception_hook(hook: Optional[ExceptionHook]) -> None:
    """Has ``hook(interceptor_name, callback_name, exception)`` called for each exception in a callback, on its
    thread, instead of logging it to the logger ``"penstock"``; None: logs again."""
    global _hook
    _hook = hook


class Registered:
    """What the registry keeps for one registration: its name, and the methods that C may call, bound."""

    __slots__ = ("methods", "name")

    def __init__(self, name: str, methods: Dict[str, Callable[[Any], Any]]) -> None:
        self.name = name
        self.methods = methods


# ---- From C to Python ----


def _verdict(returned: object, callback: str) -> int:
    if returned is None:
        return c.NEXT
    if isinstance(returned, int) and not isinstance(returned, bool):
        return int(returned)
    raise TypeError(f"{callback} returned {returned!r}, which is neither None nor a penstock.Verdict")


def _run(callback: str, handle: int, number: Optional[int]) -> int:
    found = registry.get(number)
    instance = found if isinstance(found, Instance) else None
    registered: Any = found if instance is None else instance.registered
    hop = Hop(handle, instance)
    try:
        verdict = _verdict(registered.methods[callback](hop), callback)
        if verdict == c.TAKE:
            hop.retain()
        return verdict
    finally:
        hop._end()


def _event_trampoline(callback: str) -> Any:
    def trampoline(handle: int, number: Optional[int]) -> int:
        try:
            return _run(callback, handle, number)
        except BaseException as error:
            return _failed(callback, handle, number, error)

    _codes.add(trampoline.__code__)
    return _raw.penstock_hop_callback(trampoline)


def _made(handle: int, number: Optional[int]) -> tuple[int, Instance]:
    """The verdict of `create`, and what it has made."""
    registered = registry.get(number)
    assert isinstance(registered, Registered)
    instance = Instance(registered, None)
    create = registered.methods.get("create")
    if create is None:
        return c.NEXT, instance
    hop = Hop(handle, instance)
    try:
        returned = create(hop)
    finally:
        hop._end()
    if isinstance(returned, Verdict):
        return int(returned), instance
    if returned is not None:
        instance.state = returned
    return c.NEXT, instance


def _create(handle: int, number: Optional[int], state: Any) -> int:
    try:
        verdict, instance = _made(handle, number)
        if verdict == c.NEXT:
            state[0] = registry.add(instance)
        return verdict
    except BaseException as error:
        return _failed("create", handle, number, error)


def _destroy(handle: int, number: Optional[int]) -> None:
    try:
        found = registry.get(number)
        if isinstance(found, Instance) and "destroy" in found.registered.methods:
            _run("destroy", handle, number)
    except BaseException as error:
        _failed("destroy", handle, number, error)
    finally:
        registry.remove(number)


def _intercept(handle: int, number: Optional[int]) -> int:
    """The function of a synchronous interceptor, on a worker; one may run within another."""
    thread = threading.get_ident()
    is_first = thread not in workers
    workers.add(thread)
    call = InterceptedCall(handle)
    registered: Any = registry.get(number)
    try:
        return _verdict(registered.methods["intercept"](call), "intercept")
    except BaseException as error:
        _raw.penstock_intercepted_set_value(handle, EXCEPTION_KEY, registry.add(Raised(error)), forget)
        _report(registered.name, "intercept", error)
        return _INVALID
    finally:
        call._end()
        if is_first:
            workers.discard(thread)


intercept_trampoline = _raw.penstock_intercept(_intercept)
_codes = {_create.__code__, _destroy.__code__, _objects._forget.__code__}
# Functions that C calls and that are about no hop.
hopless_codes: Set[CodeType] = set()
# Functions that C calls, with what makes up for one that has not run, given its arguments.
recoveries: Dict[CodeType, Callable[[Dict[str, Any]], object]] = {}
create_trampoline = _raw.penstock_hop_create(_create)
destroy_trampoline = _raw.penstock_hop_destroy(_destroy)
trampolines = {callback: _event_trampoline(callback) for callback in (*EVENTS, *SIGNALS)}


# ---- Exceptions ----


def _failed(callback: str, handle: int, number: Optional[int], error: BaseException) -> int:
    """An exception has come out of a callback. It goes to the caller by way of the call's values."""
    found: Any = registry.get(number)
    if found is None:
        # Its `create` has not begun, which has been told of, and could not end the call.
        return _INVALID
    registered = found.registered if isinstance(found, Instance) else found
    name = registered.name if isinstance(registered, Registered) else "?"
    # The status names the exception. Where a call can't be finished (create), the verdict below ends it; signals have
    # no verdict at all.
    _finish(name, callback, handle, error)
    if callback not in ("on_cancel", "destroy"):
        _raw.penstock_hop_set_value(handle, EXCEPTION_KEY, registry.add(Raised(error)), forget)
    report(name, callback, error)
    return _INVALID


def report(name: str, callback: str, error: BaseException) -> None:
    """Tells of what a function that C has called raised; what is more than an Exception goes on in the Python code
    that waits on this thread."""
    if not isinstance(error, Exception):
        _escaping[threading.get_ident()] = error
    _report(name, callback, error)


def _report(name: str, callback: str, error: BaseException) -> None:
    try:
        if _hook is not None:
            _hook(name, callback, error)
        else:
            _logger.error("interceptor %r raised in %s", name, callback, exc_info=error)
    except Exception:
        _logger.exception("the exception hook raised")


def _finish(name: str, callback: str, handle: int, error: BaseException) -> None:
    text = f"interceptor {name!r}: {callback} raised {type(error).__name__}"
    encoded = text.encode("utf-8", "replace").replace(b"\0", b"?")
    _raw.penstock_hop_finish(handle, StatusCode.INTERNAL.number, encoded)


# By thread: what is more than an Exception (KeyboardInterrupt) goes on in the Python code that waits there.
_escaping: Dict[int, BaseException] = {}


def raise_escaping() -> None:
    """After a function that may have run callbacks on this thread."""
    if _escaping:
        error = _escaping.pop(threading.get_ident(), None)
        if error is not None:
            raise error


def call(function: Callable[..., int], *arguments: Any) -> int:
    """Calls a C function that may run callbacks on this thread, and lets out what they let escape.

    Python runs its signal handlers on the main thread as soon as a Python function begins there: that may be a
    trampoline, before its first line. What a handler raises then (KeyboardInterrupt) can only be had from
    `sys.unraisablehook`, which is ours for as long as the main thread is in the library.
    """
    if threading.get_ident() != threading.main_thread().ident:
        result = function(*arguments)
    else:
        others = sys.unraisablehook

        def hook(unraisable: sys.UnraisableHookArgs) -> None:
            if not _begun_in_vain(unraisable):
                others(unraisable)

        sys.unraisablehook = hook
        try:
            result = function(*arguments)
        finally:
            if sys.unraisablehook is hook:
                sys.unraisablehook = others
    raise_escaping()
    return result


def _begun_in_vain(unraisable: sys.UnraisableHookArgs) -> bool:
    """Whether this came out of a trampoline: then it is a failure of that callback."""
    trace, error = unraisable.exc_traceback, unraisable.exc_value
    if trace is not None and error is not None and trace.tb_frame.f_code in recoveries:
        _escaping[threading.get_ident()] = error
        recoveries[trace.tb_frame.f_code](trace.tb_frame.f_locals)
        return True
    if trace is not None and error is not None and trace.tb_frame.f_code in hopless_codes:
        _escaping[threading.get_ident()] = error
        return True
    if trace is None or error is None or trace.tb_frame.f_code not in _codes:
        return False
    arguments = trace.tb_frame.f_locals
    number = arguments["number"]
    if "handle" not in arguments:
        registry.remove(number)
        _escaping[threading.get_ident()] = error
        return True
    callback = arguments.get("callback") or ("create" if "state" in arguments else "destroy")
    _failed(callback, arguments["handle"], number, error)
    # C gets no verdict from a function that has not run: a call that has been finished needs none.
    _finish("?", callback, arguments["handle"], error)
    if callback == "destroy":
        registry.remove(number)
    return True
