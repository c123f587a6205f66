"""The C functions as they are in include/penstock/*.h, and their types: prototypes only.

A function becomes an attribute of this package when the first one is asked for; that is when the library is loaded.
Handles are ``int | None`` (``void *``); strings that C gives back are ``bytes | None``.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .. import _library
from .c_types import *


def __getattr__(name: str) -> Any:
    if name.startswith("penstock_"):
        _library.load()
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def bind(library: ctypes.CDLL) -> None:
    """Makes every function of the headers an attribute of this package.

    Raises AttributeError, with the symbol's name, if the library lacks one.
    """
    # Here, so that the import of the package does not wait for what only the library needs.
    from .functions import PROTOTYPES

    functions = {}
    for name, (restype, *argtypes) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = restype
        function.argtypes = argtypes
        functions[name] = function
    globals().update(functions)
