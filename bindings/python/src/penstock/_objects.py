"""Python objects to which C refers. C has only a number for each object, and a C finalizer removes the object from
the registry."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Callable, Dict, Optional

from . import _raw
from ._ctrl_c import recover


class Registry:
    """Objects by number. Safe from any thread without a lock: each step is one dictionary operation."""

    def __init__(self) -> None:
        self._objects: Dict[int, object] = {}
        self._numbers = itertools.count(1)

    def add(self, thing: object) -> int:
        """Keeps ``thing`` until `remove`, and gives its number: never 0, never used again."""
        number = next(self._numbers)
        self._objects[number] = thing
        return number

    def get(self, number: Optional[int]) -> object:
        """The object with this number, or None."""
        return self._objects.get(number) if number is not None else None

    def remove(self, number: Optional[int]) -> None:
        if number is not None:
            self._objects.pop(number, None)

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


def own(owner: object, release: Callable[[int], None], handle: int) -> weakref.finalize[Any, Any]:
    """Releases ``handle`` once, when ``owner`` is collected. At exit nothing is released: the process ends
    anyway."""
    finalizer = weakref.finalize(owner, release, handle)
    finalizer.atexit = False
    return finalizer
