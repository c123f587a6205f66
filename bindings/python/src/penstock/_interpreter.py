"""Refuses sub-interpreters. The library calls Python on any thread, and there is only one way for that: ctypes, like
every use of PyGILState_Ensure, enters the main interpreter, whichever has given it the function."""

from __future__ import annotations

_WORDS = (
    "penstock can't be used in a sub-interpreter, because callbacks of C run in the main interpreter; "
    "under mod_wsgi, WSGIApplicationGroup %{GLOBAL} lets the program run there"
)

try:
    import ctypes
except ImportError as error:
    # Python 3.12 itself refuses ctypes there.
    raise ImportError(f"{_WORDS} ({error})" if "subinterpreter" in str(error) else str(error)) from error


def check() -> None:
    """ImportError: the calling code runs in a sub-interpreter."""
    api = getattr(ctypes, "pythonapi", None)
    # PyPy has no sub-interpreters, and not these functions.
    if api is None or not hasattr(api, "PyInterpreterState_Get"):
        return
    get, main = api.PyInterpreterState_Get, api.PyInterpreterState_Main
    get.restype = main.restype = ctypes.c_void_p
    if get() != main():
        raise ImportError(_WORDS)
