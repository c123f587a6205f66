"""Penstock with gevent: calls wait in the hub, while other greenlets run. There is no thread.

import penstock.gevent
penstock.gevent.init()
"""

from __future__ import annotations

import contextlib
from typing import Any, Optional

from ._calls.hubs import GreenHub, begin
from ._channels.runtime import has_runtimes
from ._handles.host import Function, Gate

try:
    import gevent
    from gevent._hub_local import get_hub_if_exists
    from gevent.hub import getcurrent
    from gevent.monkey import get_original
except ImportError as error:
    raise ImportError(f"penstock.gevent needs the package gevent: {error}", name="gevent") from error

__all__ = ["init"]


def init() -> None:
    """Lets every call of this process wait in gevent's hub, and the hub of the calling thread drive the runtimes. To
    be called once, on the main thread, before the first channel is made; before or after
    ``gevent.monkey.patch_all()``, or without it. Further times do nothing.

    RuntimeError: a channel or a runtime has been made before."""
    begin(_Hub, "gevent", has_runtimes())


class _Hub(GreenHub):
    def __init__(self) -> None:
        self._allocate_lock = get_original("_thread", "allocate_lock")
        super().__init__()

    def _own_hub(self, made: bool) -> Any:
        return gevent.get_hub() if made else get_hub_if_exists()

    def leave(self) -> None:
        hub = get_hub_if_exists()
        if hub is not None:
            hub.destroy(destroy_loop=True)

    def _is_in(self, hub: Any) -> bool:
        return getcurrent() is hub

    def _gate(self, hub: Any) -> Gate:
        return _Gate(hub)

    def _spawn(self, function: Function) -> None:
        gevent.spawn(function)

    def run_apart(self, function: Function) -> None:
        gevent.get_hub().threadpool.apply(function)

    def _call(self, hub: Any, function: Function, is_elsewhere: bool) -> None:
        call = hub.loop.run_callback_threadsafe if is_elsewhere else hub.loop.run_callback
        call(function)

    def _listen(self, hub: Any, descriptor: int, function: Function) -> Function:
        # Without a reference: the loop may end although channels are open.
        watcher = hub.loop.io(descriptor, 1, ref=False)
        # gevent ends the watch if what it calls raises, as Ctrl-C does in a Python function.
        watcher.start(hub.loop.run_callback, function)

        def stop() -> None:
            watcher.stop()
            watcher.close()

        return stop


class _Gate:
    __slots__ = ("_hub", "_is_open", "_watcher")

    def __init__(self, hub: Any) -> None:
        self._hub = hub
        self._is_open = False
        self._watcher: Optional[Any] = None

    def open(self) -> None:
        self._is_open = True
        watcher = self._watcher
        if watcher is not None:
            # If the wait ends just now, on another thread, the watcher may be closed.
            with contextlib.suppress(Exception):
                watcher.send()

    def wait(self, timeout: Optional[float] = None) -> None:
        self._watcher = watcher = self._hub.loop.async_()
        timer = None
        try:
            if timeout is not None:
                timer = self._hub.loop.timer(max(timeout, 0))
                timer.start(watcher.send)
            if not self._is_open:
                self._hub.wait(watcher)
        finally:
            self._watcher = None
            watcher.close()
            if timer is not None:
                timer.close()
