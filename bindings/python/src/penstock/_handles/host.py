"""The places in which code of the program runs and waits: threads, or the greenlets of a hub (`penstock.gevent`,
`penstock.eventlet`)."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Deque, List, Optional, Protocol, TypeVar

T = TypeVar("T")
Function = Callable[[], Any]
# How many seconds `eventually` lets pass between two steps.
_PAUSE = 0.005


class Gate(Protocol):
    """Something that one thread or greenlet waits for, once."""

    def open(self) -> None:
        """Ends the wait, also one that has not begun. Any thread, any number of times; does not wait."""

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the gate is open, up to ``timeout`` seconds."""


class Hub(Protocol):
    """An event loop on which greenlets wait, in place of threads."""

    def gate(self) -> Gate:
        """A gate for the code that runs now. WouldDeadlockError: it can't wait, since it is a callback of the hub
        itself."""

    def spawn(self, function: Function) -> None:
        """Runs ``function`` in a greenlet of the hub, soon. Any thread."""

    def post(self, function: Function) -> None:
        """Lets the hub call ``function``, which must not wait, soon. Any thread."""

    def waits_here(self) -> bool:
        """Whether code on the calling thread waits in greenlets."""

    def run_apart(self, function: Function) -> None:
        """Runs ``function``, which raises nothing, on a thread, while other greenlets run. Returns when it has
        returned."""

    def leave(self) -> None:
        """Called on a thread of the library whose callback returns: frees the hub that the program's code may have
        made for this thread."""

    def watch(self, descriptor: int, function: Function, over: Function) -> Function:
        """Lets the hub call ``function``, which must not wait, whenever ``descriptor`` is readable. Returns a
        function that ends this soon; ``over`` is called when it has ended. Any thread."""


class ThreadGate:
    """A gate for a thread: a locked lock. A threading.Event would not do: a signal handler that raises within its
    `set` leaves its lock taken, and a recovery may open the gate once more."""

    __slots__ = ("_lock",)

    def __init__(self, allocate: Callable[[], Any] = threading.Lock) -> None:
        self._lock = allocate()
        self._lock.acquire()

    def open(self) -> None:
        # Another thread may open the gate at the same time.
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def wait(self, timeout: Optional[float] = None) -> None:
        if timeout is None:
            self._lock.acquire()
        else:
            self._lock.acquire(timeout=min(max(timeout, 0), threading.TIMEOUT_MAX))


# The hub of this process; None: code runs on threads.
_hub: Optional[Hub] = None


def hub() -> Optional[Hub]:
    return _hub


def use(chosen: Hub) -> None:
    """Lets code wait in ``chosen`` from now on, for good."""
    global _hub
    _hub = chosen


def gate() -> Gate:
    """A gate for the code that runs now. WouldDeadlockError: see `Hub.gate`."""
    return ThreadGate() if _hub is None else _hub.gate()


class Gates(Deque[Gate]):
    """The gates of all code that waits for one thing. Any thread may use it, because each step is one operation of a
    deque."""

    def open(self) -> None:
        for gate in tuple(self):
            gate.open()

    def wait(
        self,
        ready: Callable[[], Optional[T]],
        timeout: Optional[float] = None,
        broken_off: Callable[[], object] = lambda: None,
    ) -> Optional[T]:
        """Returns what ``ready`` gives: at once, or when the gates have been opened or ``timeout`` seconds have
        passed; 0 does not wait, and so is allowed everywhere. If an exception ends the wait, calls
        ``broken_off``."""
        found = ready()
        if found is not None or timeout == 0:
            return found
        opened = gate()
        self.append(opened)
        try:
            # A change after this line opens the gate.
            found = ready()
            if found is not None:
                return found
            try:
                opened.wait(timeout)
            except BaseException:
                broken_off()
                raise
            return ready()
        finally:
            self.remove(opened)


def spawn(function: Function, name: str) -> None:
    """Runs ``function``, which may wait: on a daemon thread with this name, or in a greenlet."""
    if _hub is None:
        threading.Thread(target=function, name=name, daemon=True).start()
    else:
        _hub.spawn(function)


def apart(function: Callable[[], T], name: str) -> T:
    """Calls ``function``, which waits in a function of C. If that would stop greenlets, or keep the main thread from
    handling signals, it runs on another thread, where it goes on if an exception, such as that of Ctrl-C, ends the
    wait for it."""
    results: List[T] = []
    errors: List[BaseException] = []
    opened = ThreadGate()

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)
        finally:
            opened.open()

    if _hub is not None and _hub.waits_here():
        _hub.run_apart(run)
    elif threading.current_thread() is not threading.main_thread():
        return function()
    else:
        threading.Thread(target=run, name=name, daemon=True).start()
        opened.wait()
    if errors:
        raise errors[0]
    return results[0]


def eventually(hub: Hub, step: Callable[[], int], timeout: Optional[float], again: int) -> int:
    """Lets the hub call ``step`` until its result is not ``again``, or ``timeout`` seconds (None: without limit) have
    passed. Returns the last result; raises what ``step`` has raised."""
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        result = _in_hub(hub, step)
        left = _PAUSE if until is None else min(_PAUSE, until - time.monotonic())
        if result != again or left <= 0:
            return result
        hub.gate().wait(left)


def _in_hub(hub: Hub, step: Callable[[], int]) -> int:
    gate = hub.gate()
    results: List[int] = []
    errors: List[BaseException] = []

    def run() -> None:
        try:
            results.append(step())
        except BaseException as error:
            errors.append(error)
        finally:
            gate.open()

    hub.post(run)
    gate.wait()
    if errors:
        raise errors[0]
    return results[0]
