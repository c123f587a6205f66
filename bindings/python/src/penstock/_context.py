"""The contexts (PEP 567) in which functions of the program run that the library calls.

A call takes the context of the code that makes it, and each callback of the call runs in a copy of its own: two lanes
may run callbacks at once, and a context can't be entered twice. A function that belongs to no call runs in a copy of
the context in which it was registered.
"""

from __future__ import annotations

import sys
import weakref
from contextvars import Context
from typing import Any, Callable, Optional, TypeVar

from . import _raw
from ._objects import forget, registry

T = TypeVar("T")


def run(context: Optional[Context], function: Callable[..., T], *arguments: Any) -> T:
    """Runs ``function`` in a copy of ``context``; None: in an empty context."""
    within = Context() if context is None else context.copy()
    handled = sys.exc_info()[1]
    if handled is None:
        return within.run(function, *arguments)
    try:
        return within.run(function, *arguments)
    except BaseException as error:
        _unchain(error, handled)
        raise


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


def _is_gone(_: object) -> None: ...


class Lent:
    """The context of a call whose Python object owns it. If the registry owned it, a context that refers to the
    object would keep the object, and the call would go on although nobody has it any more."""

    __slots__ = ("_kept", "_reference")

    def __init__(self, context: Context) -> None:
        # Of a reference with a callback the garbage collector makes None before it calls any `__del__`. Some versions
        # of Python do so with other references only afterwards.
        self._reference = weakref.ref(context, _is_gone)
        self._kept: Optional[Context] = None

    def keep(self) -> None:
        """Called when the call has ended, or the object is dropped, because the call's last callbacks still need the
        context. If the garbage collector has found both together, the context is gone already, and stays so."""
        self._kept = self._reference()

    def get(self) -> Optional[Context]:
        return self._reference() if self._kept is None else self._kept


def give(options: int, context: Context, lent: bool) -> Optional[Lent]:
    """Gives ``context`` to the calls that are made with ``options``, a ``penstock_call_options *``. C refers to it
    until the last callback of the last of these calls has returned. ``lent``: the caller owns it; see `Lent`."""
    given = Lent(context) if lent else None
    _raw.penstock_call_options_set_context(options, registry.add(context if given is None else given), forget)
    return given


def of_hop(hop: int, otherwise: Registered) -> Optional[Context]:
    """The context of the call of ``hop``, a ``penstock_hop *`` in its callback; for a call that no Python code has
    made, the context of the registration."""
    found = registry.get(_raw.penstock_hop_context(hop))
    return found if isinstance(found, Context) else _lent(found, otherwise)


def of_pick(pick: int, otherwise: Registered) -> Optional[Context]:
    """The context of the call for which ``pick``, a ``penstock_pick *``, was made; as `of_hop`."""
    found = registry.get(_raw.penstock_pick_context(pick))
    return found if isinstance(found, Context) else _lent(found, otherwise)


def _lent(found: object, otherwise: Registered) -> Optional[Context]:
    context = found.get() if isinstance(found, Lent) else None
    return otherwise.context if context is None else context


# ---- Of functions that are registered on a channel or a runtime ----

# The contexts of what is registered on a channel or a runtime, which owns them. If C owned them, a context that
# refers to a channel would keep the channel.
Contexts = weakref.WeakKeyDictionary["Registered", Context]


class Registered:
    """The base of the registry's objects for what is registered on a channel or a runtime."""

    __slots__ = ("__weakref__", "_context")

    def __init__(self, context: Optional[Context], contexts: Optional[Contexts]) -> None:
        """``contexts``: those of the channel or the runtime. None, for what is registered for one call: it has no
        context besides the call's."""
        self._context = None
        if context is not None and contexts is not None:
            self._context = weakref.ref(context)
            contexts[self] = context

    @property
    def context(self) -> Optional[Context]:
        return None if self._context is None else self._context()
