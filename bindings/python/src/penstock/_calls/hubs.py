"""The part that the hubs of gevent and eventlet have in common. Each thread may have a hub of its own; that of the
thread that has made the `GreenHub` drives the runtimes."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Set

from .._handles import host
from .._handles.ctrl_c import is_of_the_library
from .._handles.errors import WouldDeadlockError
from .._handles.host import Function, Gate, Hub, ThreadGate
from .._raw import constants as c

# Replacing what threading has, gevent and eventlet leave this one out: it tells threads apart, and not greenlets.
this_thread = threading.get_native_id


class _Watch:
    __slots__ = ("descriptor", "function", "stop")

    def __init__(self, descriptor: int, function: Function) -> None:
        self.descriptor = descriptor
        self.function = function
        # Ends the watch in the hub that drives.
        self.stop: Function


class GreenHub(Hub):
    """See `host.Hub`. A subclass has the functions of one package, for which a hub is an opaque object."""

    # Makes locks for threads, whatever has been patched.
    _allocate_lock: Callable[[], Any]

    def _own_hub(self, made: bool) -> Any:
        """The hub of the calling thread; None: it has none. ``made``: makes it then."""
        raise NotImplementedError

    def _is_in(self, hub: Any) -> bool:
        """Whether the calling code is a callback of ``hub``, the hub of its thread."""
        raise NotImplementedError

    def _gate(self, hub: Any) -> Gate:
        """A gate for the calling code, which is a greenlet of ``hub``."""
        raise NotImplementedError

    def _spawn(self, function: Function) -> None:
        """Runs ``function`` in a greenlet of the calling thread's hub, soon."""
        raise NotImplementedError

    def _call(self, hub: Any, function: Function, is_elsewhere: bool) -> None:
        """Lets ``hub`` call ``function`` soon. ``is_elsewhere``: the calling thread is not that of the hub."""
        raise NotImplementedError

    def _listen(self, hub: Any, descriptor: int, function: Function) -> Function:
        """Does what `watch` does, in the thread of ``hub``."""
        raise NotImplementedError

    def __init__(self) -> None:
        self._thread = this_thread()
        self._hub = self._own_hub(made=True)
        self._watches: Set[_Watch] = set()
        os.register_at_fork(after_in_child=self._become_child)

    def _become_child(self) -> None:
        """In a forked child, which has one thread, with the greenlets of the parent's thread."""
        self._thread = this_thread()

    def _here(self) -> Any:
        """The hub of the calling thread, or None. The driving thread may have got another one, for example in a
        forked child: then that one drives."""
        is_driving = this_thread() == self._thread
        hub = self._own_hub(made=is_driving)
        if is_driving and hub is not self._hub:
            self._hub = hub
            for watch in self._watches:
                watch.stop = self._listen(hub, watch.descriptor, watch.function)
        return hub

    def gate(self) -> Gate:
        hub = self._here()
        if is_of_the_library() if hub is None else self._is_in(hub):
            raise WouldDeadlockError(c.E_WOULD_DEADLOCK, "code that runs in a callback can't wait")
        return ThreadGate(self._allocate_lock) if hub is None else self._gate(hub)

    def waits_here(self) -> bool:
        return self._here() is not None

    def spawn(self, function: Function) -> None:
        self.post(lambda: self._spawn(function))

    def post(self, function: Function) -> None:
        is_elsewhere = this_thread() != self._thread
        if not is_elsewhere:
            self._here()
        self._call(self._hub, function, is_elsewhere)

    def watch(self, descriptor: int, function: Function, over: Function) -> Function:
        watch = _Watch(descriptor, function)

        def start() -> None:
            watch.stop = self._listen(self._hub, descriptor, function)
            self._watches.add(watch)

        def stop() -> None:
            if watch in self._watches:
                self._watches.discard(watch)
                watch.stop()
                # The hub may be about to call the function once more.
                self.post(over)

        self._on_driving_thread(start)
        return lambda: self._on_driving_thread(stop)

    def _on_driving_thread(self, function: Function) -> None:
        if this_thread() == self._thread:
            self._here()
            function()
        else:
            self.post(function)


def begin(kind: Callable[[], GreenHub], package: str, is_begun: bool) -> None:
    """Lets code wait in the hub of ``package``, whose class is ``kind``. Does nothing a second time. RuntimeError:
    ``is_begun``, or code waits in another hub already."""
    found = host.hub()
    if type(found) is kind:
        return
    if found is not None:
        raise RuntimeError(f"calls wait in another hub already, not in {package}'s")
    if is_begun:
        raise RuntimeError(f"penstock.{package}.init() has to be called before the first runtime or channel is made")
    host.use(kind())
