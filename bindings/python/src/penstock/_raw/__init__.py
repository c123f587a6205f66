"""The C functions as they are in include/penstock/*.h, and their types: prototypes only.

The first use of any function loads the library, and then every function becomes an attribute of this package.
Handles are ``int | None`` (``void *``); strings that C gives back are ``bytes | None``.
"""

from __future__ import annotations

from typing import Any

from . import library
from .c_types import *


def __getattr__(name: str) -> Any:
    if name.startswith("penstock_"):
        globals().update(library.functions())
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]
