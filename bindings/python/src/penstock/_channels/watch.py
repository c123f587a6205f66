"""Functions that watch the state of a channel."""

from __future__ import annotations

from contextvars import copy_context
from typing import Callable, Optional

from .. import _raw
from .._handles.context import Scoped, run
from .._handles.ctrl_c import recover
from .._handles.errors import check
from .._handles.objects import Objects, forget, registry
from .._handles.reports import report
from .._handles.verdict import Connectivity

Changed = Callable[[Connectivity], object]


class _Watch(Scoped):
    def __init__(self, changed: Changed, kept: Objects) -> None:
        super().__init__(copy_context(), kept)
        self.changed = changed


def watch(channel: int, changed: Changed, kept: Objects) -> None:
    """Lets C call ``changed``. C keeps the function until the watch is over."""
    if not callable(changed):
        raise TypeError(f"a function that gets a state, not {changed!r}")
    number = registry.add(_Watch(changed, kept))
    check(_raw.penstock_channel_watch_connectivity(channel, _changed, number, forget))


def _call_changed(number: Optional[int], state: int) -> int:
    """Called by C with each new state. Does not raise into C. If the program's function raises, it still gets further
    states."""
    watch = registry.get(number)
    if not isinstance(watch, _Watch):
        return 0
    try:
        return run(watch.context, watch.changed, Connectivity(state)) is not False
    except BaseException as error:
        run(watch.context, report, "watch_connectivity", "changed", error)
    return 1


recover(_call_changed, lambda given: _call_changed(given["number"], given["state"]))
_changed = _raw.penstock_connectivity_function(_call_changed)
