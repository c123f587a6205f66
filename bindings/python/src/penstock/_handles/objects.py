"""Python objects to which C refers. C has only a number for each object, and a C finalizer removes the object from
the registry."""

from __future__ import annotations

import itertools
import sys
import weakref
from ctypes import c_void_p
from typing import Any, Callable, Dict, Optional, TypeVar

from .. import _raw
from .ctrl_c import recover

T = TypeVar("T")


class Kept:
    """The base of objects to which C refers by their number and which a `Keeper` keeps. The registry refers to such
    an object weakly: with a strong reference the garbage collector could not see that an interceptor which refers to
    its channel is needed by nothing but that channel."""

    __slots__ = ("__weakref__", "kept")

    def __init__(self, kept: Optional[Objects]) -> None:
        """``kept``: the keeper's objects. None: there is no keeper, so the registry keeps the object."""
        self.kept = kept


# The objects that a keeper keeps, by number.
Objects = Dict[int, Any]


class Keeper:
    """The base of the objects that keep what C refers to: channels, runtimes, executors and ready-made interceptors.

    C may refer to the objects a while longer than their keeper exists, until the last call has ended, and tells them
    of that end. So when the keeper is dropped, or collected together with its objects, the registry keeps them, until
    C's finalizers. In a collection this order makes that safe, whatever other threads do meanwhile:

    1. The collector clears all weak references to what it has found, the registry's among them, in one step. From
       now on no other thread reaches these objects: a callback finds None, and does nothing.
    2. It calls the finalizers of `own`, so that all their handles are released, and NULL. The keeper's own handle is
       NULL, but not released.
    3. It calls `__del__`. Now the registry has the objects again, and the keeper's handle is released. What callbacks
       do with the objects can't use a released handle.

    So the end of a channel does not come between 1 and 3, and neither does a callback of a call, because a running
    call keeps its keepers' objects (`CallContext`). Another callback that comes just then, such as one about a
    connection, is left out."""

    _kept: Objects

    def _own(self, release: Callable[[int], None], handle: int) -> Any:
        """As `own`, for a handle whose release leads to callbacks."""
        self._last = last = _Last(release, handle)
        weakref.finalize(self, last.hide).atexit = False
        return last.shown

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        has = self.__dict__
        registry.keep(has.get("_kept", {}))
        # At exit nothing is released: the process ends anyway.
        if "_last" in has and not ends():
            has["_last"].give_back()


class _Last:
    """The handle of a keeper."""

    __slots__ = ("_handle", "_release", "shown")

    def __init__(self, release: Callable[[int], None], handle: int) -> None:
        self._release = release
        self._handle = handle
        self.shown = c_void_p(handle)

    def hide(self) -> None:
        self.shown.value = None

    def give_back(self) -> None:
        self.hide()
        self._release(self._handle)


def _is_gone(_: object) -> None: ...


def weak(thing: T) -> weakref.ref[T]:
    """A weak reference that the garbage collector makes None before it calls any `__del__`: one with a callback. Some
    versions of Python do so with other references only afterwards."""
    return weakref.ref(thing, _is_gone)


class _Weak:
    """The registry's entry for an object that has a keeper."""

    __slots__ = ("reference", "thing")

    def __init__(self, kept: Kept) -> None:
        self.reference = weak(kept)
        # The object itself, after the end of its keeper.
        self.thing: Optional[Kept] = None


class Registry:
    """Objects by number. Safe from any thread without a lock: each step is one dictionary operation."""

    def __init__(self) -> None:
        self._objects: Dict[Optional[int], object] = {}
        self._numbers = itertools.count(1)
        # As `get`, for numbers of objects without a keeper: without a Python function, since each callback asks.
        self.get_unkept = self._objects.get

    def add(self, thing: object) -> int:
        """Keeps ``thing`` until `remove`, unless it has a keeper (see `Kept`), and gives its number: never 0, never
        used again."""
        number = next(self._numbers)
        if isinstance(thing, Kept) and thing.kept is not None:
            thing.kept[number] = thing
            self._objects[number] = _Weak(thing)
        else:
            self._objects[number] = thing
        return number

    def get(self, number: Optional[int]) -> object:
        """The object with this number, or None."""
        found = self._objects.get(number) if number is not None else None
        if type(found) is _Weak:
            return found.reference() if found.thing is None else found.thing
        return found

    def keep(self, kept: Objects) -> None:
        """Keeps the objects of a keeper from now on, until `remove`. Not those which another thread removes just now:
        their entries are used no more."""
        for number, thing in kept.copy().items():
            entry = self._objects.get(number)
            if type(entry) is _Weak:
                entry.thing = thing

    def remove(self, number: Optional[int]) -> None:
        if number is None:
            return
        thing = self.get(number)
        self._objects.pop(number, None)
        if isinstance(thing, Kept) and thing.kept is not None:
            thing.kept.pop(number, None)

    def __len__(self) -> int:
        return len(self._objects)


registry = Registry()


def _forget(number: Optional[int]) -> None:
    registry.remove(number)


def forget_again(given: Dict[str, Any]) -> None:
    """Recovery (see `recover`) for a finalizer that was interrupted: forgets the object ``number``. If the finalizer
    has already forgotten it, this does nothing."""
    registry.remove(given["number"])


recover(_forget, forget_again, forget_again)
# The only finalizer that C gets; kept here for the life of the process.
forget = _raw.penstock_finalizer(_forget)


class Value:
    """A Python object that is stored under a key of a call. Values that other languages store are not of
    this class."""

    __slots__ = ("thing",)

    def __init__(self, thing: object) -> None:
        self.thing = thing


class Raised:
    """The exception that a callback has raised, stored under a key of its call until the caller gets it."""

    __slots__ = ("error",)
    # Whether any object of this class has been made in this process. If not, other code need not look for one.
    ever = False

    def __init__(self, error: BaseException) -> None:
        self.error: Optional[BaseException] = error
        Raised.ever = True

    def take(self) -> Optional[BaseException]:
        """Takes the exception out. Its traceback may refer to frames that refer to the call: if C kept the
        exception, the garbage collector would not see that reference cycle."""
        error, self.error = self.error, None
        return error


def value_at(address: Optional[int], default: Any = None) -> Any:
    """The value behind a ``void *`` of a call: the Python object, or the address that C stored."""
    if not address:
        return default
    entry = registry.get(address)
    return entry.thing if isinstance(entry, Value) else address


class Uncopied:
    """The base of objects that own a handle of C, which a copy or a pickle would have without owning it."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} can't be copied or pickled")


def own(owner: object, release: Callable[[int], None], handle: int) -> Any:
    """Releases ``handle`` once, when ``owner`` is collected. At exit nothing is released: the process ends anyway.
    Returns the handle as a ``c_void_p``, which C functions take, too, and which is NULL after the release. Owners
    use only this one: they may live on after the release, in a callback of an interceptor that was collected with
    them."""
    owned = c_void_p(handle)
    weakref.finalize(owner, give_back, release, owned).atexit = False
    return owned


def give_back(release: Callable[[int], None], owned: c_void_p) -> None:
    handle, owned.value = owned.value, None
    if handle is not None:
        release(handle)
