"""Runtimes: host-driven event loops. A thread that waits in a call drives the loop; while none waits, one Python
thread drives it. A runtime with several loops has threads of the library instead."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import os
import select
import signal
import threading
import weakref
from ctypes import byref, c_int, c_void_p
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .. import _hooks, _raw
from .._calls import blocking, green
from .._calls.options import forget_kept_options
from .._calls.wait import Waiters, workers
from .._handles import fork, host
from .._handles.arguments import milliseconds
from .._handles.ctrl_c import call, raise_escaping
from .._handles.errors import ClosedError, check, check_with, library_error
from .._handles.fork import process
from .._handles.metadata import owned_text
from .._handles.objects import Keeper, Objects, Uncopied
from .._handles.reply import RpcError
from .._handles.verdict import Kinds, Level
from .._interceptors.registration import Methods, Registering, Registration
from .._raw import constants as c

_logger = logging.getLogger("penstock")
# How many milliseconds the driver thread pauses when another thread drives the loop, so that it neither competes
# with that thread nor spins.
_LOOK_AWAY_MS = 1
# How many seconds the end of the process waits for callbacks that do not return.
_EXIT_SECONDS = 2.0
# The signals that a fault raises on its own thread. They stay unblocked: if they were blocked, a fault would end the
# process without running its handler.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS}


def _reading(*descriptors: int) -> Callable[[Optional[int]], List[int]]:
    """A function that waits, up to a number of milliseconds, until one of ``descriptors`` is readable, and returns
    those that are. ``eventlet.monkey_patch()`` removes select.poll; its select.select runs other green threads."""
    if not hasattr(select, "poll"):
        return lambda ms: select.select(descriptors, [], [], None if ms is None else ms / 1000)[0]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return lambda ms: [descriptor for descriptor, _ in poll.poll(ms)]


class _Driver:
    """A daemon thread that drives a runtime's loop whenever there is work and no other thread drives it.

    It waits for the runtime's descriptor, which is not readable while a blocking call drives the loop. So this thread
    sleeps during blocking calls, and does not compete with them for the loop.
    """

    def __init__(self, handle: int, waiters: Waiters) -> None:
        self._waiters = waiters
        descriptor = c_int()
        check(_raw.penstock_runtime_fd(handle, byref(descriptor)))
        self._descriptor = descriptor.value
        self._stopped, self._stop = os.pipe()
        self._handle: int = _raw.penstock_runtime_retain(handle)
        self._starter = threading.get_native_id()
        self._thread = threading.Thread(target=self._run, name="penstock", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # The main thread runs Python's signal handlers, so this thread takes no signals except those of its own
        # faults. Packages such as eventlet run it as part of the thread that has started it, which must take them.
        if threading.get_native_id() != self._starter:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
        try:
            work, stopped = _reading(self._descriptor, self._stopped), _reading(self._stopped)
            while self._stopped not in work(None):
                if self._waiters:
                    stopped(_LOOK_AWAY_MS)
                    continue
                result = _raw.penstock_runtime_poll(self._handle, 0)
                try:
                    raise_escaping()
                except BaseException:
                    _logger.exception("a callback raised this on the penstock thread, where no code waits for it")
                if result == c.E_BUSY:
                    stopped(_LOOK_AWAY_MS)
                elif result not in (c.OK, c.E_INTERRUPTED):
                    return
        finally:
            _raw.penstock_runtime_release(self._handle)
            os.close(self._stopped)

    def stop(self) -> None:
        """Lets the thread end, and does not wait for it. May be called on any thread, but only once."""
        os.close(self._stop)

    def join(self, seconds: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def forget(self) -> None:
        """For a forked child, which has copies of the pipe and the handle but no driver thread: closes and releases
        them."""
        os.close(self._stop)
        os.close(self._stopped)
        _raw.penstock_runtime_release(self._handle)


class _HubDriver:
    """Lets a hub drive a runtime's loop whenever there is work."""

    def __init__(self, handle: int, hub: host.Hub) -> None:
        descriptor = c_int()
        check(_raw.penstock_runtime_fd(handle, byref(descriptor)))
        self._handle: int = _raw.penstock_runtime_retain(handle)
        # The hub may be about to use the handle, and the release may close the descriptor.
        release = functools.partial(_raw.penstock_runtime_release, self._handle)
        self._unwatch = hub.watch(descriptor.value, self._turn, release)

    def _turn(self) -> None:
        try:
            result = call(_raw.penstock_runtime_poll, self._handle, 0)
        except Exception:
            _logger.exception("a callback raised this in the hub, where no code waits for it")
            return
        if result not in (c.OK, c.E_BUSY, c.E_INTERRUPTED):
            self._unwatch()

    def stop(self) -> None:
        """Ends the watch, and does not wait for that. May be called on any thread."""
        self._unwatch()

    def join(self, seconds: float) -> None: ...

    def forget(self) -> None:
        self.stop()


class Runtime(Keeper, Registering, Uncopied):
    """An event loop for channels, with interceptors for all of them. Channels that name no runtime share one.

    A thread that waits in a call drives the loop. With ``drive`` a daemon thread drives it while no thread waits, or
    a hub of greenlets always does (`penstock.gevent`, `penstock.eventlet`);
    without ``drive`` the program calls `poll` whenever `fileno` is readable, and nothing happens in between. Up to
    ``max_workers`` threads run synchronous interceptors (1 to 1024). ``spin_us``: for how many microseconds a thread
    that waits in a call polls for the response before it sleeps (0 to 1000000). This lowers latency and costs CPU
    time; use it only if a core is free.

    ``loops``: how many loops the channels are spread over (1 to 64). With more than one, threads of the library drive
    them, so there is no `fileno` and no `poll`, ``drive`` must be True, and callbacks of calls on different channels
    may run on several threads at once. A call can be redirected only to a channel of its own loop.

    ``caller_drives``: whether a thread that waits in a call may drive the loop. With False threads of the library
    drive, as with several loops. ``linger_us``: for how many microseconds such a loop stays free for the next call
    before its thread takes it back (0 to 10000000).

    InvalidArgumentError: a value is out of range or not a number; its ``path`` names it.
    """

    def __init__(
        self,
        *,
        drive: bool = True,
        max_workers: int = 32,
        spin_us: int = 0,
        loops: int = 1,
        caller_drives: bool = True,
        linger_us: int = 200,
    ) -> None:
        handle, error = c_void_p(), c_void_p()
        has_own_threads = drive and (loops != 1 or not caller_drives)
        given: Dict[str, object] = {
            "mode": "thread" if has_own_threads else "host",
            "max_workers": max_workers,
            "spin_us": spin_us,
            "loops": loops,
            "caller_drives": caller_drives,
            "linger_us": linger_us,
        }
        options = json.dumps(given).encode()
        check_with(_raw.penstock_runtime_new(options, byref(handle), byref(error)), error)
        assert handle.value is not None
        _expect_forks()
        self._handle: int = self._own(_raw.penstock_runtime_release, handle.value)
        self._kept: Objects = {}
        self._waiters = Waiters()
        self._drive = drive and not has_own_threads
        self._driver: Union[_Driver, _HubDriver, None] = None
        # May be taken again by a signal handler or a destructor, which run in the middle of anything.
        self._lock = threading.RLock()
        self._is_starting = False
        self._process = process()
        self._stop: Optional[weakref.finalize[Any, Any]] = None
        _runtimes.add(self)

    def _used(self) -> int:
        """The handle, for a new channel. The first use starts the driver thread."""
        if self._drive and self._driver is None:
            with self._lock:
                if not self._is_starting:
                    self._is_starting = True
                    try:
                        self._start()
                    finally:
                        self._is_starting = False
        return self._handle

    def _start(self) -> None:
        if self._driver is None and self._process == process():
            hub = host.hub()
            self._driver = _Driver(self._handle, self._waiters) if hub is None else _HubDriver(self._handle, hub)
            self._stop = weakref.finalize(self, self._driver.stop)

    def _registry_functions(self) -> Tuple[str, int]:
        return "penstock_runtime", self._handle

    def _has_registered(self, number: int) -> None: ...

    def _has_removed(self, number: int) -> None:
        self._kept.pop(-number, None)

    def fileno(self) -> int:
        """A descriptor that is readable whenever `poll` would do work; not to be closed.

        StateError: threads of the library drive the runtime: it has several loops, or callers do not drive.
        """
        descriptor = c_int()
        check(_raw.penstock_runtime_fd(self._handle, byref(descriptor)))
        return descriptor.value

    def poll(self, timeout: Optional[float] = 0.0) -> None:
        """Runs the loop for one turn: waits up to ``timeout`` seconds (None: until there is work) and does all the
        work that is ready.

        BusyError: ``timeout`` is 0 and another thread drives the loop, or the caller is a callback. TimedOutError:
        another thread drove the loop for the whole ``timeout``. ClosedError: the runtime has been shut down.
        StateError: as in `fileno`.
        """
        wait_ms = -1 if timeout is None else milliseconds(timeout)
        check(self._waiters.wait(_raw.penstock_runtime_poll, self._handle, wait_ms))

    @property
    def interceptors(self) -> List[Dict[str, Any]]:
        """The registrations on the runtime, in the order that calls meet them: id, name, priority, place,
        level, per, methods, kinds, calls_in_flight, calls_seen."""
        listed: List[Dict[str, Any]] = json.loads(owned_text(_raw.penstock_runtime_interceptors_json, self._handle))
        return listed

    def snapshot(self, timeout: float = 1.0) -> Dict[str, Any]:
        """A snapshot for diagnosing hangs: ``calls``, each with its ``holder`` (the party that has to act next) and
        the events that wait at its hops. If a callback does not return within ``timeout`` seconds, ``complete`` is
        False, ``calls`` is None, and ``running`` names the interceptor. See penstock_runtime_snapshot_json."""
        wait_ms = milliseconds(timeout)
        text = owned_text(lambda handle, out: _raw.penstock_runtime_snapshot_json(handle, wait_ms, out), self._handle)
        view: Dict[str, Any] = json.loads(text)
        return view

    def shutdown(self, timeout: Optional[float] = None) -> None:
        """Ends every call with CANCELLED, closes every channel, and stops the driver thread.

        Waits up to ``timeout`` seconds (None: without limit). TimedOutError: a callback or the resolver has not
        returned; call `shutdown` again. WouldDeadlockError: called in a callback. Once it has succeeded, a further
        call does nothing.
        """
        hub = host.hub()
        if hub is None:
            wait_ms = -1 if timeout is None else milliseconds(timeout)
            result = self._waiters.wait(_raw.penstock_runtime_shutdown, self._handle, wait_ms)
        else:
            result = host.eventually(hub, self._shut_down, timeout, c.E_TIMEOUT)
        if result not in (c.OK, c.E_ALREADY):
            raise library_error(result, "the runtime can't be shut down now")
        self._end_driver(_EXIT_SECONDS)

    def _shut_down(self) -> int:
        # The end closes the descriptor that the hub watches, and needs nobody else to drive.
        self._end_driver(0)
        return call(_raw.penstock_runtime_shutdown, self._handle, 0)

    def _is_taken_over(self) -> bool:
        descriptor = c_int()
        result = _raw.penstock_runtime_fd(self._handle, byref(descriptor))
        return self._process == process() and result in (c.OK, c.E_STATE)

    def _become_child(self) -> None:
        """Called in a forked child, where the waiting threads do not exist: forgets them, and starts the driver
        thread anew."""
        self._lock = threading.RLock()
        self._is_starting = False
        self._waiters.forget()
        driver, stop = self._driver, self._stop
        if isinstance(driver, _HubDriver) and self._process == process():
            # The hub's greenlets go on in the child, and the descriptor keeps its number.
            return
        self._driver, self._stop = None, None
        if driver is not None and stop is not None and stop.detach():
            driver.forget()
            if self._process == process():
                self._used()

    def _end_driver(self, seconds: float) -> None:
        driver, stop = self._driver, self._stop
        if driver is not None and stop is not None:
            stop()
            driver.join(seconds)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()


_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_default: Optional[Runtime] = None
# As `Runtime._lock`.
_default_lock = threading.RLock()
# The registrations for every channel. A child in which the parent's handles do not work registers them again.
_for_every_channel: List[Registration] = []


def has_runtimes() -> bool:
    """Whether this process has a runtime."""
    return len(_runtimes) > 0


def default_runtime() -> Runtime:
    """The runtime of channels that name none: made when it is first used, one per process."""
    global _default
    runtime = _default
    if runtime is None:
        with _default_lock:
            runtime = _default
            if runtime is None:
                made = Runtime()
                # A signal handler or a destructor may have made one meanwhile, on this thread.
                runtime = _default = _default or made
                if runtime is made:
                    for registration in _for_every_channel:
                        registration._register(runtime)
    return runtime


def add_interceptor(
    interceptor: object,
    priority: int = 0,
    methods: Methods = None,
    kinds: Kinds = None,
    name: Optional[str] = None,
    hold_bytes: int = 0,
    level: Optional[Level] = None,
    per_attempt: Optional[bool] = None,
) -> Registration:
    """Registers ``interceptor`` for the calls that are made from now on, on every channel that names no runtime.

    A forked child has the interceptor, too. See `Channel.add_interceptor`.
    """
    registration = default_runtime().add_interceptor(
        interceptor, priority, methods, kinds, name, hold_bytes, level, per_attempt
    )
    registration._siblings = _for_every_channel
    _for_every_channel.append(registration)
    return registration


def snapshot(timeout: float = 1.0) -> Dict[str, Any]:
    """A snapshot of the runtime of channels that name none. See `Runtime.snapshot`."""
    return default_runtime().snapshot(timeout)


# Whether a fork calls the functions that `_expect_forks` registers.
_expects_forks = False
# Whether this process is a child in which `_take_over` has not run yet.
_is_new_child = False


def _expect_forks() -> None:
    """Registers the functions of forks, when the first runtime is made. Python calls the functions of ``before`` in
    reverse order. One that takes a lock for which callbacks may wait must run when no callback runs any more, so
    after `fork.prepare`: it has to be registered earlier. The module of ThreadPoolExecutor has one for the lock of
    ``submit``; it is imported here, because the program may import it later."""
    global _expects_forks
    if _expects_forks:
        return
    # At the end of the process the module can't be imported for the first time.
    with contextlib.suppress(RuntimeError):
        importlib.import_module("concurrent.futures.thread")
    # Two threads may register the functions twice, which does no harm.
    os.register_at_fork(before=fork.prepare, after_in_parent=fork.parent, after_in_child=_take_over)
    _expects_forks = True


def _renew() -> None:
    """Called in a forked child, which has only the thread that forked: replaces what other threads had locked."""
    global _default_lock, _is_new_child
    _raw.library.renew_lock()
    _default_lock = threading.RLock()
    workers.clear()
    _is_new_child = True
    if not _expects_forks:
        _take_over()


def _take_over() -> None:
    """Called in a forked child: takes over the parent's runtimes where it can."""
    global _default, _is_new_child
    if not _is_new_child:
        return
    _is_new_child = False
    fork.child()
    runtimes = list(_runtimes)
    if not any(runtime._is_taken_over() for runtime in runtimes):
        fork.take_nothing_over()
        _default = None
        forget_kept_options()
        green.forget()
        blocking.forget()
        for registration in _for_every_channel:
            registration._scope = None
    for runtime in runtimes:
        runtime._become_child()


def _end_quietly() -> None:
    """Lets the daemon threads that still run end without a traceback when the end of the process ends their calls."""
    others = threading.excepthook

    def hook(arguments: Any) -> None:
        if not issubclass(arguments.exc_type, (RpcError, ClosedError)):
            others(arguments)

    threading.excepthook = hook


def _at_exit() -> None:
    _end_quietly()
    for runtime in list(_runtimes):
        if runtime._process == process():
            runtime._end_driver(_EXIT_SECONDS)
            _raw.penstock_runtime_shutdown(runtime._handle, int(_EXIT_SECONDS * 1000))


_hooks.in_child[__name__] = _renew
_hooks.at_exit[__name__] = _at_exit
