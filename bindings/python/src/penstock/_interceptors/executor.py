"""Executors, which run an interceptor's callbacks on threads other than the one that drives the runtime."""

from __future__ import annotations

import functools
from contextvars import copy_context
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _raw
from .._handles import host
from .._handles.context import CallContext, Scoped, run
from .._handles.ctrl_c import recover
from .._handles.errors import GoneError, check
from .._handles.fork import process
from .._handles.objects import Keeper, Objects, Uncopied, forget, own, registry, weak
from .._handles.reports import report, tell
from .._raw import constants as c


class Job:
    """Work that the library submits: the executor has to call it once, on any thread. Further calls do nothing."""

    __slots__ = ("_pending",)

    def __init__(self, job: Callable[[Any], None], argument: Any) -> None:
        # The thread that takes the job out of the list runs it: list.pop is one atomic step.
        self._pending: List[Tuple[Callable[[Any], None], Any]] = [(job, argument)]

    def __call__(self) -> None:
        try:
            job, argument = self._pending.pop()
        except IndexError:
            return
        hub = host.hub()
        if hub is not None and hub.waits_here():
            # In a greenlet the callbacks could wait, and others would run on the thread in the midst of them.
            hub.post(lambda: job(argument))
        else:
            job(argument)

    def _revoke(self) -> bool:
        """Withdraws the job. False: it has been run already, or is running."""
        try:
            self._pending.pop()
        except IndexError:
            return False
        return True


class _Submit(Scoped):
    """The registry's object for an executor."""

    __slots__ = ("submit",)

    def __init__(self, submit: Callable[[Job], object], kept: Objects) -> None:
        super().__init__(copy_context(), kept)
        self.submit = submit


class Executor(Keeper, Uncopied):
    """Runs an interceptor's callbacks. ``submit(job)`` must arrange for ``job()`` to be called once, on any thread.
    The return value of ``submit`` is ignored; if it raises, the job is not taken, and the call ends with INTERNAL.

    ``survives_fork``: ``submit`` works in a forked child, too. Otherwise a call in the child that needs the executor
    ends with INTERNAL.

    ``Executor(pool.submit)`` takes a `concurrent.futures.Executor`. A job that is taken and never run delays its
    call until the call is cancelled or its deadline comes.

    An interceptor names its executors in the attributes ``executor`` (both lanes), ``outbound_executor`` and
    ``inbound_executor``, or for one call in `create`, with `Hop.set_executors`.
    """

    def __init__(self, submit: Callable[[Job], object], *, survives_fork: bool = False) -> None:
        if not callable(submit):
            raise TypeError(f"submit must be callable, got {submit!r}")
        self._kept: Objects = {}
        self._submit = _Submit(submit, self._kept)
        self._survives_fork = survives_fork
        self._begin()

    def _begin(self) -> None:
        self._process = 0
        self._address: Any = None
        self._itself = weak(self)

    @property
    def _handle(self) -> Any:
        # The first use may be in a `__del__`, after the garbage collector has found this executor. A handle that is
        # made then would never be released: since 3.14.4 Python clears the weak references that are made during a
        # collection, and does not call their callbacks.
        if self._itself() is None:
            if not self._address:
                raise GoneError(c.E_GONE, "the executor has been collected")
            return self._address
        # A forked child in which the parent's handles do not work can't use its parent's executors, so it makes its
        # own.
        if self._process != process():
            CallContext.outlives_calls = True
            self._address = own(self, _raw.penstock_executor_release, self._new())
            self._process = process()
        return self._address

    def _new(self) -> int:
        handle = c_void_p()
        result = _raw.penstock_executor_new(_take, registry.add(self._submit), forget, byref(handle))
        check(result, "the executor can't be made")
        assert handle.value is not None
        if self._survives_fork:
            check(_raw.penstock_executor_survives_fork(handle.value))
        return handle.value


class SerialExecutor(Executor):
    """A thread of the library that runs callbacks in the order in which they come. The thread ends by itself when
    this object has been collected and no registration or call needs it.

    Callbacks may wait there, but not for a call that needs the same executor: that raises WouldDeadlockError.
    """

    def __init__(self) -> None:
        self._begin()

    def _new(self) -> int:
        handle = c_void_p()
        check(_raw.penstock_executor_new_serial(byref(handle)), "a thread for the executor can't be started")
        assert handle.value is not None
        return handle.value


def _take_job(job: Callable[[Any], None], argument: Any, number: Optional[int]) -> int:
    executor = registry.get(number)
    taken = Job(job, argument)
    if not isinstance(executor, _Submit):
        return 1
    hub = host.hub()
    if hub is not None and hub.waits_here():
        # A pool whose threads are greenlets waits in `submit`.
        hub.spawn(functools.partial(run, executor.context, _submitted, executor, taken))
        return 0
    try:
        run(executor.context, executor.submit, taken)
        return 0
    except BaseException as error:
        run(executor.context, report, "", "submit", error)
        # ``submit`` may have passed the job on before it raised. If the job has not begun, it is withdrawn, and 1
        # tells C that the job is not taken. If it has begun, 0 tells C that it is taken.
        return int(taken._revoke())


def _submitted(executor: _Submit, job: Job) -> None:
    """Passes on a job that C counts as taken."""
    try:
        executor.submit(job)
    except BaseException as error:
        tell("", "submit", error)
        # Does nothing if ``submit`` has passed the job on.
        job()


def _run_job(given: Dict[str, Any]) -> None:
    # Recovery: C counts the job as taken, so it has to run. If the `Job` was made, another thread may have run it;
    # then ``taken()`` does nothing. If no `Job` was made, ``submit`` has not seen the job.
    taken = given.get("taken") or Job(given["job"], given["argument"])
    taken()


# If this function raises, C counts the job as taken.
recover(_take_job, _run_job, _run_job)
_take = _raw.penstock_submit(_take_job)


def address(executor: Optional[Executor]) -> Any:
    """The ``penstock_executor *`` of ``executor``; None if ``executor`` is None."""
    if executor is None:
        return None
    if not isinstance(executor, Executor):
        raise TypeError(f"expected a penstock.Executor, got {executor!r}")
    return executor._handle


def chosen(interceptor: object) -> Tuple[Optional[Executor], Optional[Executor]]:
    """The executors that an interceptor's attributes name: for the outbound lane, and for the inbound lane."""
    both = getattr(interceptor, "executor", None)
    outbound = getattr(interceptor, "outbound_executor", None)
    inbound = getattr(interceptor, "inbound_executor", None)
    return outbound or both, inbound or both
