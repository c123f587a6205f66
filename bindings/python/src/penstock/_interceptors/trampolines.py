"""The functions that C calls for an interceptor: one for each kind of callback. None of them ever raises into C."""

from __future__ import annotations

import threading
from typing import Any, Dict, Optional

from .. import _raw
from .._calls.wait import step_in, step_out, workers
from .._handles import host
from .._handles.context import of_hop, run, run_with
from .._handles.ctrl_c import escape, recover, recover_with
from .._handles.objects import Raised, forget, registry
from .._handles.reply import EXCEPTION_KEY
from .._handles.reports import report, tell
from .._handles.status import StatusCode
from .._handles.verdict import Verdict
from .._raw import constants as c
from .connection import event_from
from .hop import Hop, Instance, Registered
from .sync import InterceptedCall

SIGNALS = ("on_cancel", "on_demand", "on_sent")
EVENTS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status")
# A verdict that no callback may return: the library ends the call with INTERNAL and names the interceptor.
_INVALID = -1


# ---- From C to Python ----


def verdict_of(returned: object, callback: str) -> int:
    """The verdict that a callback has returned. TypeError: it has returned anything else."""
    if returned is None:
        return c.NEXT
    if isinstance(returned, int) and not isinstance(returned, bool):
        return int(returned)
    raise TypeError(f"{callback} returned {returned!r}, which is neither None nor a penstock.Verdict")


def _run(callback: str, handle: int, number: Optional[int]) -> int:
    seen_by: Any = registry.get(number)
    if seen_by is None:
        return c.NEXT
    registered = seen_by
    if isinstance(seen_by, Instance):
        registered = seen_by.registered
        if seen_by.failure is not None:
            if callback == "on_start":
                finish(registered.name, "create", handle, seen_by.failure)
            return c.NEXT
        if callback == "on_start" and callback not in registered.methods:
            return c.NEXT
    hop = Hop(handle, seen_by)
    try:
        returned = run_with(of_hop(handle, registered), registered.methods[callback], hop)
        if returned is None:
            return c.NEXT
        verdict = verdict_of(returned, callback)
        if verdict == c.TAKE:
            hop.retain()
        return verdict
    finally:
        hop._running = False


def _event_trampoline(callback: str) -> Any:
    def trampoline(handle: int, number: Optional[int]) -> int:
        try:
            return _run(callback, handle, number)
        except BaseException as error:
            return _failed(callback, handle, number, error)

    recover_with(trampoline, _has_failed, _has_failed)
    return _raw.penstock_hop_callback(trampoline)


def _made(handle: int, number: Optional[int]) -> tuple[int, Optional[Instance]]:
    """Runs `create`. Returns its verdict and the state that it has made."""
    registered = registry.get(number)
    if not isinstance(registered, Registered):
        return c.NEXT, None
    instance = Instance(registered, None)
    create = registered.methods.get("create")
    if create is None:
        return c.NEXT, instance
    hop = Hop(handle, instance)
    try:
        returned = run(of_hop(handle, registered), create, hop)
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
        if verdict == c.NEXT and instance is not None:
            state[0] = registry.add(instance)
        return verdict
    except BaseException as error:
        return _create_failed(handle, number, state, error)


def _create_failed(handle: int, number: Optional[int], state: Any, error: BaseException) -> int:
    """Handles an exception of `create`, which can't end the call: the hop's `on_start`, which every interceptor with
    `create` has in its table, ends it."""
    registered = registry.get(number)
    if not isinstance(registered, Registered):
        return c.NEXT
    made = registry.get(state[0])
    if not isinstance(made, Instance):
        made = Instance(registered, None)
        state[0] = registry.add(made)
    made.failure = error
    leave(handle, error)
    run(of_hop(handle, registered), report, registered.name, "create", error)
    return c.NEXT


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
    """Runs the function of a synchronous interceptor: on the thread that waits for the call, or on a worker thread.
    While it waits in `next`, the function of another interceptor may run within it, on the same thread."""
    registered: Any = registry.get(number)
    if registered is None:
        return c.NEXT
    waits = step_out()
    thread = threading.get_ident()
    is_new_worker = not waits and thread not in workers
    if is_new_worker:
        workers.add(thread)
    call = InterceptedCall(handle, registered, waits)
    context = of_hop(handle, registered)
    try:
        return verdict_of(run(context, registered.methods["intercept"], call), "intercept")
    except BaseException as error:
        if waits and not isinstance(error, Exception):
            # Ctrl-C, for example: it was meant for the caller, and leaves through its wait.
            _break_off(handle, error)
            return _INVALID
        leave(handle, error)
        run(context, tell, registered.name, "intercept", error)
        # The last step: it ends the call, which wakes the caller.
        finish(registered.name, "intercept", handle, error)
        return _INVALID
    finally:
        call._end()
        step_in(waits)
        if is_new_worker:
            workers.discard(thread)
            hub = host.hub()
            if hub is not None:
                hub.leave()


def _break_off(handle: int, error: BaseException) -> None:
    """Cancels the call of a function that the caller's own thread has run, and lets the caller's wait raise
    ``error``."""
    escape(error)
    _raw.penstock_hop_end(handle, StatusCode.CANCELLED.number, b"interrupted")


def _is_broken_off(given: Dict[str, Any], error: BaseException) -> None:
    _break_off(given["handle"], error)


recover_with(_intercept, _is_broken_off, _is_broken_off)


def _connection(number: Optional[int], event: Any) -> None:
    """Passes a connection event to an interceptor."""
    registered: Any = registry.get(number)
    if not isinstance(registered, Registered):
        return
    try:
        told = event_from(event[0])
        if told is not None:
            run(registered.context, registered.methods["on_connection"], told)
    except BaseException as error:
        run(registered.context, report, registered.name, "on_connection", error)


recover(_connection, lambda given: _connection(given["number"], given["event"]))


# ---- Exceptions ----


def _failed(callback: str, handle: int, number: Optional[int], error: BaseException) -> int:
    """Handles an exception that a callback has raised: ends the call, stores the exception in the call's values,
    where the caller finds it, and reports it. Returns a verdict."""
    found: Any = registry.get(number)
    registered = found.registered if isinstance(found, Instance) else found
    name, context = "?", None
    if isinstance(registered, Registered):
        name, context = registered.name, of_hop(handle, registered)
    # `finish` ends the call with a status that names the exception. In the callback of a signal the library ignores
    # the verdict.
    finish(name, callback, handle, error)
    if callback not in ("on_cancel", "destroy"):
        leave(handle, error)
    run(context, report, name, callback, error)
    return _INVALID


def leave(handle: int, error: BaseException) -> None:
    """Leaves an exception in the call's values, where the caller finds it."""
    _raw.penstock_hop_set_value(handle, EXCEPTION_KEY, registry.add(Raised(error)), forget)


def finish(name: str, callback: str, handle: int, error: BaseException) -> None:
    """Ends the call with a status that names the exception of a callback."""
    _raw.penstock_hop_end(handle, StatusCode.INTERNAL.number, words(name, callback, error).encode())


def words(name: str, callback: str, error: BaseException) -> str:
    """The message of that status; C takes it as it is."""
    text = f"interceptor {name!r}: {callback} raised {type(error).__name__}"
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def _has_failed(given: Dict[str, Any], error: BaseException) -> None:
    """Recovery for a trampoline in which a signal handler has raised: treats the exception as if the callback had
    raised it."""
    handle, number = given["handle"], given["number"]
    if "state" in given:
        _create_failed(handle, number, given["state"], error)
        return
    callback = given.get("callback") or "destroy"
    _failed(callback, handle, number, error)
    # C gets no verdict from a function that raises, so `finish` ends the call here, unless `_failed` has ended it.
    finish("?", callback, handle, error)
    if callback == "destroy":
        registry.remove(number)


for _function in (_create, _destroy):
    recover_with(_function, _has_failed, _has_failed)
create_trampoline = _raw.penstock_hop_create(_create)
destroy_trampoline = _raw.penstock_hop_destroy(_destroy)
intercept_trampoline = _raw.penstock_intercept(_intercept)
connection_trampoline = _raw.penstock_connection_callback(_connection)
trampolines = {callback: _event_trampoline(callback) for callback in (*EVENTS, *SIGNALS, "on_pick")}
