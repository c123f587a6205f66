"""Finds and loads libpenstock: from an explicit path, else the library inside this package, else the system's."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Dict, Optional, Tuple, Union

SONAME = "libpenstock.so.0"
# The oldest library version that has every function this package calls. The major version has to be the same.
MINIMUM = (0, 2, 0)

# Functions that keep the GIL, because giving it up and taking it back would take longer than the function itself.
# They only read memory. A function that takes a lock of the library must not be one of them: while another thread
# forks the process, the lock waits for the end of the fork, and the fork waits for the GIL.
_KEEP_THE_GIL = {
    "penstock_hop_context",
    "penstock_pick_context",
    "penstock_reply_code",
    "penstock_reply_bytes",
}

# May be taken again by a signal handler or a destructor, which run in the middle of anything.
_lock = threading.RLock()
_path: Optional[str] = None
_functions: Dict[str, Any] = {}


def load(path: Optional[Union[str, os.PathLike[str]]] = None) -> str:
    """Loads the library, once per process, and returns the file it came from.

    The first use of the package calls this without a path. A program that wants another library than the one inside
    the package has to call it earlier, with that file's ``path``.

    Raises ImportError if there is no library, if the file is not libpenstock, or if its version does not fit (the
    message names the file and both versions); RuntimeError if another file has been loaded before.
    """
    global _path
    with _lock:
        if _path is not None:
            if path is not None and os.path.realpath(path) != os.path.realpath(_path):
                raise RuntimeError(f"libpenstock has been loaded from {_path}; it can't be loaded from {path} too")
            return _path
        library, file = _open(os.fspath(path) if path is not None else None)
        _check(library, file)
        _path = file
        return file


def functions() -> Dict[str, Any]:
    """Every function of the headers, by name, with its types; loads the library."""
    load()
    return _functions


def known(name: str) -> Any:
    """A function by its name; None if the library has not been loaded."""
    return _functions.get(name)


def renew_lock() -> None:
    """Called in a forked child, where the thread that held the lock may not exist."""
    global _lock
    _lock = threading.RLock()


def _carried() -> str:
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_lib", SONAME)


def _open(explicit: Optional[str]) -> Tuple[ctypes.CDLL, str]:
    if explicit is not None:
        candidate = explicit
    elif os.path.exists(_carried()):
        candidate = _carried()
    else:
        candidate = SONAME
    try:
        library = ctypes.CDLL(candidate)
    except OSError as error:
        if candidate is SONAME:
            raise ImportError(
                f"libpenstock was not found: not in this package ({_carried()}), and the system has no {SONAME}"
                f" ({error}); install it, or call penstock.load(path) first",
                name="penstock",
                path=candidate,
            ) from error
        raise ImportError(f"{candidate} can't be loaded: {error}", name="penstock", path=candidate) from error
    return library, _mapped_file() if candidate is SONAME else candidate


def _mapped_file() -> str:
    """The file in which the dynamic loader found the system's library."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                file = line.rstrip("\n").partition("/")
                if os.path.basename(file[2]).startswith("libpenstock.so"):
                    return "/" + file[2]
    except OSError:
        pass
    return SONAME


def _check(library: ctypes.CDLL, file: str) -> None:
    needed = ".".join(map(str, MINIMUM))
    try:
        number_of = library.penstock_version_number
    except AttributeError as error:
        raise ImportError(f"{file} is not libpenstock: {error}", name="penstock", path=file) from error
    number_of.restype = ctypes.c_uint32
    number_of.argtypes = ()
    number = int(number_of())
    version = (number >> 16, number >> 8 & 0xFF, number & 0xFF)
    found = ".".join(map(str, version))
    if version[0] != MINIMUM[0] or version < MINIMUM:
        raise ImportError(
            f"{file} is libpenstock {found}; this package needs {needed} or a later {MINIMUM[0]}.x",
            name="penstock",
            path=file,
        )
    try:
        _bind(library)
    except AttributeError as error:
        raise ImportError(
            f"{file} says that it is libpenstock {found}, but lacks a function that {needed} has: {error}",
            name="penstock",
            path=file,
        ) from error


def _bind(library: ctypes.CDLL) -> None:
    """Sets the argument and result types of the library's functions.

    Raises AttributeError, with the symbol's name, if the library lacks a function of the headers.
    """
    # Imported only when the library is loaded, so that importing the package takes less time.
    from .functions import PROTOTYPES

    # PyPy has no functions that keep the GIL.
    keeping = getattr(ctypes, "PyDLL", ctypes.CDLL)(library._name)
    for name, (restype, *argtypes) in PROTOTYPES.items():
        function = getattr(keeping if name in _KEEP_THE_GIL else library, name)
        function.restype = restype
        function.argtypes = argtypes
        _functions[name] = function
