"""Call options as the library has parsed them. They are kept for later calls with the same arguments."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Dict, Optional, Tuple

from . import _raw
from ._arguments import c_string
from ._codec import Codec
from ._errors import check, check_with
from ._keywords import CallKeywords
from ._objects import own
from ._wait import interrupted

# How many parsed options are kept for later calls with the same arguments.
_KEPT = 64


class CallOptions:
    """Parsed options, for any number of calls. The interceptors of a single call are registered on its options. Owns
    a ``penstock_call_options *``."""

    __slots__ = ("__weakref__", "_has_interceptors", "_has_object_level", "handle")

    def __init__(self, text: str) -> None:
        handle, error = c_void_p(), c_void_p()
        check_with(_raw.penstock_call_options_new(c_string(text, "options"), byref(handle), byref(error)), error)
        assert handle.value is not None
        self.handle: int = handle.value
        self._has_object_level = False
        self._has_interceptors = False
        own(self, _raw.penstock_call_options_release, self.handle)
        check(
            _raw.penstock_call_options_set_on_interrupted(self.handle, interrupted, None, _raw.penstock_finalizer())
        )

    def _registry_functions(self) -> Tuple[str, int]:
        return "penstock_call_options", self.handle

    def _has_registered(self, number: int) -> None: ...

    def _has_removed(self, number: int) -> None: ...


_kept: Dict[str, CallOptions] = {}


def call_options(keywords: CallKeywords, codec: Optional[Codec] = None) -> CallOptions:
    """The options for a call, without its interceptors. TypeError, ValueError (`InvalidArgumentError` is one): a
    wrong argument."""
    text = keywords.options()
    # Options with metadata are not kept, since it differs from call to call; neither are credentials.
    if keywords.metadata or keywords.credentials is not None or codec is not None or keywords.interceptors:
        options = CallOptions(text)
        if codec is not None:
            check(_raw.penstock_call_options_set_codec(options.handle, codec.handle))
        return options
    kept = _kept.get(text)
    if kept is None:
        kept = CallOptions(text)
        if len(_kept) >= _KEPT:
            _kept.clear()
        _kept[text] = kept
    return kept


def forget_kept_options() -> None:
    """Forgets the parsed options in a forked child, because they belong to the parent."""
    _kept.clear()
