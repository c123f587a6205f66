"""Call options as the library has parsed them. They are kept for later calls with the same arguments."""

from __future__ import annotations

from contextvars import Context
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from .. import _raw
from .._handles.arguments import c_string
from .._handles.context import CallContext, give
from .._handles.ctrl_c import has_escaped, recover
from .._handles.errors import check, check_with
from .._handles.metadata import Metadata, MetadataValue
from .._handles.objects import Objects, own
from .codec import Codec
from .keywords import CallKeywords

# How many parsed options are kept for later calls with the same arguments.
_KEPT = 64


def _interrupted(_: Optional[int]) -> int:
    """Called on the thread that waits in penstock_channel_unary, after a signal and otherwise a few times a second.
    When it begins, Python runs the handlers of signals. The result 1 ends the wait."""
    return int(has_escaped())


# If a handler raises before the first line, C may take the result for 0. The next call of `_interrupted` returns 1.
recover(_interrupted, lambda given: None)
# No finalizer.
_NOTHING = _raw.penstock_finalizer()
# C may call this trampoline as long as the process lives, so the module keeps it.
interrupted = _raw.penstock_interrupted(_interrupted)


class CallOptions:
    """Parsed options, for any number of calls. The interceptors of a single call are registered on its options. Owns
    a ``penstock_call_options *``."""

    __slots__ = (
        "__weakref__",
        "_has_callbacks",
        "_has_functions",
        "_has_object_level",
        "_tasks",
        "context",
        "handle",
        "lent",
        "text",
    )
    # C has the interceptors of a call until the call has ended, which may be later than the end of this object.
    _kept = None

    def __init__(self, text: str) -> None:
        handle, error = c_void_p(), c_void_p()
        check_with(_raw.penstock_call_options_new(c_string(text, "options"), byref(handle), byref(error)), error)
        assert handle.value is not None
        self.handle: int = own(self, _raw.penstock_call_options_release, handle.value)
        self._has_object_level = False
        self._has_functions = False
        self._has_callbacks = False
        # The runner of the `async def` callbacks of the call's own interceptors, see `Registering`.
        self._tasks: Any = None
        # The context that C has for the call with these options.
        self.context: Optional[CallContext] = None
        # The same, if the call's Python object is to own it.
        self.lent: Optional[CallContext] = None
        # The text of options that may be lent to one call after another.
        self.text: Optional[str] = None
        check(
            _raw.penstock_call_options_set_on_interrupted(self.handle, interrupted, None, _raw.penstock_finalizer())
        )

    def add(self, pairs: Iterable[Tuple[str, MetadataValue]]) -> None:
        """Adds metadata to the requests of the calls that will be made with these options."""
        request = _raw.penstock_call_options_request(self.handle)
        metadata = Metadata._view(_raw.penstock_request_metadata(request), self._stays)
        for name, value in pairs:
            metadata.add(name, value)

    def _stays(self) -> None:
        """The guard of `add`'s metadata, which these options own."""

    def _registry_functions(self) -> Tuple[str, int]:
        return "penstock_call_options", self.handle

    def _has_registered(self, number: int) -> None: ...

    def _has_removed(self, number: int) -> None: ...


_kept: Dict[str, CallOptions] = {}
# Options for calls that have a context. Only one call at a time has them, so they are lent to it and given back.
_spare: Dict[str, List[CallOptions]] = {}


def call_options(
    keywords: CallKeywords,
    codec: Optional[Codec] = None,
    context: Optional[Context] = None,
    lent: bool = False,
    keeps: Tuple[Objects, ...] = (),
    over: Optional[Callable[[], None]] = None,
) -> CallOptions:
    """The options for a call, without its interceptors. ``context``: that of the one call that is made with these
    options; `has_begun` or `has_ended` is to be called then. ``lent``, ``keeps`` and ``over``: see `CallContext`.
    TypeError, ValueError (`InvalidArgumentError` is one): a wrong argument."""
    text = keywords.options()
    # Options with metadata or a scope are not kept, since these differ from call to call; neither are credentials.
    is_kept = not (
        keywords.metadata
        or keywords.credentials is not None
        or codec is not None
        or keywords.interceptors
        or keywords.cancel_scope is not None
    )
    if context is None and is_kept:
        kept = _kept.get(text)
        if kept is None:
            kept = CallOptions(text)
            if len(_kept) >= _KEPT:
                _kept.clear()
            _kept[text] = kept
        return kept
    options = _taken(text) if is_kept else CallOptions(text)
    if keywords.metadata:
        options.add(keywords.pairs)
    if keywords.cancel_scope is not None:
        scope = keywords.cancel_scope._handle
        check(_raw.penstock_call_options_set_cancel_scope(options.handle, scope), "the scope can't be used")
    if codec is not None:
        check(_raw.penstock_call_options_set_codec(options.handle, codec.handle))
    if context is None:
        return options
    if options.context is not None and not lent and over is None:
        options.context.lend(context, keeps)
        return options
    options.context = give(options.handle, context, lent, keeps, over)
    options.lent = options.context if lent else None
    return options


def _taken(text: str) -> CallOptions:
    try:
        return _spare[text].pop()
    except (KeyError, IndexError):
        options = CallOptions(text)
        options.text = text
        return options


def has_begun(options: CallOptions) -> None:
    """Called when the one call with these options has been made. The call has their context from now on, and they may
    be used for another call."""
    if options.text is None:
        return
    check(_raw.penstock_call_options_set_context(options.handle, None, _NOTHING))
    options.context = options.lent = None
    _give_back(options, options.text)


def has_ended(options: CallOptions) -> None:
    """Called, in the place of `has_begun`, when the one call with these options has ended. Unless callbacks may still
    run, C keeps the context, which another call will fill: this saves two calls of C."""
    if options.text is None or options.context is None or CallContext.outlives_calls:
        has_begun(options)
        return
    options.context.lend(None, ())
    _give_back(options, options.text)


def _give_back(options: CallOptions, text: str) -> None:
    spare = _spare.get(text)
    if spare is None:
        if len(_spare) >= _KEPT:
            _spare.clear()
        spare = _spare.setdefault(text, [])
    if len(spare) < _KEPT:
        spare.append(options)


def forget_kept_options() -> None:
    """Forgets the parsed options in a forked child, because they belong to the parent."""
    _kept.clear()
    _spare.clear()
