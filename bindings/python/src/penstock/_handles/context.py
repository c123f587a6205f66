"""The contexts (PEP 567) in which functions of the program run that the library calls.

A call takes the context of the code that makes it, and each callback of the call runs in a copy of its own: two lanes
may run callbacks at once, and a context can't be entered twice. A function that belongs to no call runs in a copy of
the context in which it was registered.
"""

from __future__ import annotations

import sys
from contextvars import Context
from typing import Any, Callable, Optional, Tuple, TypeVar

from .. import _raw
from .ctrl_c import recover
from .objects import Kept, Objects, registry, weak

T = TypeVar("T")
A = TypeVar("A")


def _exception() -> Optional[BaseException]:
    """The exception that the calling thread handles, as `sys.exception` of Python 3.11."""
    return sys.exc_info()[1]


_handled: Callable[[], Optional[BaseException]] = getattr(sys, "exception", _exception)


def run(context: Optional[Context], function: Callable[..., T], *arguments: Any) -> T:
    """Runs ``function`` in a copy of ``context``; None: in an empty context."""
    within = Context() if context is None else context.copy()
    handled = _handled()
    if handled is None:
        return within.run(function, *arguments)
    try:
        return within.run(function, *arguments)
    except BaseException as error:
        _unchain(error, handled)
        raise


def run_with(context: Optional[Context], function: Callable[[A], T], argument: A) -> T:
    """Does the same with one argument, which takes half the time, for what runs several times in each call."""
    if context is None or _handled() is not None:
        return run(context, function, argument)
    return context.copy().run(function, argument)


def _unchain(error: BaseException, handled: BaseException) -> None:
    """Takes ``handled`` out of the chain of ``error``: Python has put it there, because this thread made its call
    while it handled that exception. The function that has raised ``error`` has nothing to do with it."""
    seen = set()
    while error is not handled and id(error) not in seen and error.__context__ is not None:
        seen.add(id(error))
        if error.__context__ is handled:
            error.__context__ = None
            return
        error = error.__context__


# ---- Of calls ----


class CallContext:
    """The registry's object for a call with callbacks, until the last of them has returned: the call's context, and
    ``keeps``, the objects of the channel and the runtime, which a running call keeps so that each of its callbacks
    finds them."""

    __slots__ = ("_context", "_reference", "keeps", "over", "raised")
    # Whether callbacks may run after the caller has learnt of the end of its call: those on executors may.
    outlives_calls = False

    def __init__(
        self, context: Optional[Context], lent: bool, keeps: Tuple[Objects, ...], over: Optional[Callable[[], None]]
    ) -> None:
        """``lent``: the call's Python object owns the context. If the registry owned it, a context that refers to the
        object would keep the object, and the call would go on although nobody has it any more. ``over``: called when
        the call has ended and its last callback has returned, on any thread, perhaps twice. It must not wait."""
        self.keeps = keeps
        self.over = over
        # The exception of an `async def` callback, which C can't keep, because the callback runs in no callback of C.
        self.raised: Optional[BaseException] = None
        self._reference = weak(context) if lent else None
        self._context = None if lent else context

    def lend(self, context: Optional[Context], keeps: Tuple[Objects, ...]) -> None:
        """Makes this the context of another call. None: of no call, until the next one."""
        self._context = context
        self.keeps = keeps
        self.raised = None

    def keep(self) -> None:
        """Called when a call with a lent context has ended, or its object is dropped, because the call's last
        callbacks still need the context. If the garbage collector has found both together, the context is gone
        already, and stays so."""
        if self._reference is not None:
            self._context = self._reference()

    def get(self) -> Optional[Context]:
        """The call's context; None: it has none, or none any more."""
        if self._context is None and self._reference is not None:
            return self._reference()
        return self._context


def give(
    options: int,
    context: Context,
    lent: bool,
    keeps: Tuple[Objects, ...],
    over: Optional[Callable[[], None]] = None,
) -> CallContext:
    """Gives ``context`` to the call that is made with ``options``, a ``penstock_call_options *``. C refers to it
    until the last callback of the call has returned."""
    made = CallContext(context, lent, keeps, over)
    _raw.penstock_call_options_set_context(options, registry.add(made), _over)
    return made


def _is_over(number: Optional[int]) -> None:
    """Called by C when it refers to a context no more."""
    made = registry.get(number)
    if isinstance(made, CallContext) and made.over is not None:
        made.over()
    registry.remove(number)


recover(_is_over, lambda given: _is_over(given["number"]), lambda given: _is_over(given["number"]))
_over = _raw.penstock_finalizer(_is_over)


def of_hop(hop: int, otherwise: Scoped) -> Optional[Context]:
    """The context of the call of ``hop``, a ``penstock_hop *`` in its callback; for a call that no Python code has
    made, the context of the registration."""
    found = registry.get_unkept(_raw.penstock_hop_context(hop))
    # Each callback asks, so the usual answer, a context that is not lent, costs no further function.
    if type(found) is CallContext:
        context = found._context
        if context is not None:
            return context
    return _of(found, otherwise)


def given(hop: int) -> Optional[CallContext]:
    """What Python code has given to the call of ``hop``; None: no Python code has made it, or it has no context."""
    found = registry.get(_raw.penstock_hop_context(hop))
    return found if isinstance(found, CallContext) else None


def of_pick(pick: int, otherwise: Scoped) -> Optional[Context]:
    """The context of the call for which ``pick``, a ``penstock_pick *``, was made; as `of_hop`."""
    return _of(registry.get_unkept(_raw.penstock_pick_context(pick)), otherwise)


def _of(found: object, otherwise: Scoped) -> Optional[Context]:
    context = found.get() if isinstance(found, CallContext) else None
    return otherwise.context if context is None else context


# ---- Of functions that are registered on a channel or a runtime ----


class Scoped(Kept):
    """The base of the registry's objects for what is registered on a channel or a runtime, which keeps them in
    ``kept``. None, for what is registered for one call: it has no context besides the call's."""

    __slots__ = ("context",)

    def __init__(self, context: Optional[Context], kept: Optional[Objects]) -> None:
        super().__init__(kept)
        self.context = None if kept is None else context
