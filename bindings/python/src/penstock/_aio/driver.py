"""Drives a runtime by an event loop: the loop watches the runtime's descriptor; no thread is needed."""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from typing import Callable, List, Optional, Protocol, Set

from .. import _raw
from .._calls.carried import Out
from .._channels.runtime import Runtime
from .._handles.ctrl_c import call
from .._handles.errors import ClosedError
from .._handles.fork import process
from .._raw import constants as c
from .loops import Loop, Waiting, running_loop


async def until_woken(loop: Loop, waiting: List[Waiting]) -> None:
    """Waits until `wake` is called for ``waiting``. A wait that is cancelled leaves nothing there."""
    future = loop.create_future()
    waiting.append(future)
    try:
        await future
    finally:
        if future in waiting:
            waiting.remove(future)


def wake(waiting: List[Waiting]) -> None:
    futures = waiting.copy()
    waiting.clear()
    for future in futures:
        if not future.done():
            future.set_result(None)


def call_on(loop: Loop, function: Callable[[], object]) -> None:
    """Calls ``function``: now if ``loop`` runs on this thread, else when it runs next; never, if it is closed."""
    try:
        is_here = running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        function()
        return
    # The end of the loop, which may come just now, has ended the calls.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


class _Running(Protocol):
    """The part of `Running` that is used here."""

    method: str
    is_cancelled: bool

    def cancel(self, reason: str) -> bool: ...
    def fetch(self) -> None: ...


class Driver:
    """The runtime of one event loop, for all channels on that loop.

    The event loop keeps this object, through the reader of the runtime's descriptor, until the loop is closed.
    """

    def __init__(self, loop: Loop) -> None:
        self.runtime = Runtime(drive=False)
        self.is_open = True
        # The calls in which messages wait.
        self.readable: List[_Running] = []
        self.groups: weakref.WeakSet[Group] = weakref.WeakSet()
        self._process = process()
        self._loop = weakref.ref(loop)
        self._descriptor = self.runtime.fileno()
        loop.add_reader(self._descriptor, _Reader(self))

    @property
    def is_usable(self) -> bool:
        """Whether calls can be made. False once the loop is closed, and in a forked child that needs new handles."""
        return self.is_open and self._process == process()

    def check(self) -> None:
        """ClosedError: the event loop is closed."""
        if not self.is_open:
            raise ClosedError(c.E_CLOSED, "the event loop of the channel is closed")

    def turn(self) -> None:
        """Does all the work that is ready."""
        try:
            result = call(_raw.penstock_runtime_poll, self.runtime._handle, 0)
        finally:
            # All messages that this turn has brought cross together.
            readable, self.readable = self.readable, []
            for running in readable:
                running.fetch()
        if result not in (c.OK, c.E_BUSY, c.E_INTERRUPTED):
            loop = self._loop()
            if loop is not None and not loop.is_closed():
                # The runtime may have been shut down, at the end of the process, and has no `fileno` then.
                loop.remove_reader(self._descriptor)

    def end(self) -> None:
        """Called when the event loop is closed: no code can wait for a call any more. Ends all calls."""
        self.is_open = False
        running = [running for group in self.groups for running in group.running]
        forgotten = [each for each in running if not each.is_cancelled]
        if self._process == process():
            _raw.penstock_runtime_shutdown(self.runtime._handle, 0)
        if forgotten:
            names = ", ".join(sorted({each.method for each in forgotten}))
            text = f"the event loop was closed while {len(forgotten)} calls were running: {names}"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


class Group:
    """The calls of one channel that have not ended."""

    def __init__(self, driver: Driver, loop: Loop) -> None:
        self.driver = driver
        self.loop = loop
        self.running: Set[_Running] = set()
        self.out = Out()
        self._waiting: List[Waiting] = []
        driver.groups.add(self)

    async def ended(self) -> None:
        """Waits until no call is left."""
        while self.running and self.driver.is_open:
            await until_woken(self.loop, self._waiting)

    def discard(self, running: _Running) -> None:
        self.running.discard(running)
        if not self.running and self.driver.is_open:
            wake(self._waiting)


class _Reader:
    """The function that the event loop calls when there is work. Only the loop keeps this object, and lets it go when
    it is closed. So its end tells of the loop's end, for which neither asyncio nor trio has a callback."""

    __slots__ = ("_driver",)

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __call__(self) -> None:
        self._driver.turn()

    def __del__(self) -> None:
        self._driver.end()


_drivers: weakref.WeakKeyDictionary[Loop, weakref.ref[Driver]] = weakref.WeakKeyDictionary()
# May be taken again by a destructor, which runs in the middle of anything.
_lock = threading.RLock()


def driver_of(loop: Loop) -> Driver:
    """The driver of ``loop``, made when it is first asked for."""
    with _lock:
        reference = _drivers.get(loop)
    found: Optional[Driver] = None if reference is None else reference()
    if found is None or not found.is_usable:
        # Each loop is used by one thread, so no other thread makes a driver for it meanwhile.
        found = Driver(loop)
        with _lock:
            _drivers[loop] = weakref.ref(found)
    return found
