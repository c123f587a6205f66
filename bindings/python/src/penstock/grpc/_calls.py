"""The objects of calls, with the names that grpcio's have: ``_InactiveRpcError``, which a call with one response
raises, and ``_MultiThreadedRendezvous``, which is a running call, its future, and the exception that it raises."""

from __future__ import annotations

import functools
import sys
import time
from types import TracebackType
from typing import Any, Callable, NoReturn, Optional, Tuple

from .._calls import call as core
from .._handles import reply
from .._handles.errors import TimedOutError
from ._metadata import incoming
from ._names import Call, Future, FutureCancelledError, FutureTimeoutError, RpcError, StatusCode
from ._outcomes import CANCELLED, Outcome, outcome_of, text_of


class _InactiveRpcError(RpcError, Call, Future):
    """A call that ended with another status than OK, or that could not be made."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self._outcome = outcome

    def initial_metadata(self) -> Tuple[Any, ...]:
        """The response headers."""
        return self._outcome.initial

    def trailing_metadata(self) -> Tuple[Any, ...]:
        """The trailers."""
        return self._outcome.trailing

    def code(self) -> StatusCode:
        """The status code."""
        return self._outcome.code

    def details(self) -> Optional[str]:
        """The status message."""
        return self._outcome.details

    def debug_error_string(self) -> Optional[str]:
        """Code and message in one line; None if the error comes from this side."""
        return self._outcome.debug

    def is_active(self) -> bool:
        """Always False: the call has ended."""
        return False

    def time_remaining(self) -> Optional[float]:
        """Always None: the call has ended."""
        return None

    def cancel(self) -> bool:
        """Always False: the call has ended."""
        return False

    def cancelled(self) -> bool:
        """Always False: the call was not cancelled by this object."""
        return False

    def running(self) -> bool:
        """Always False: the call has ended."""
        return False

    def done(self) -> bool:
        """Always True: the call has ended."""
        return True

    def result(self, timeout: Optional[float] = None) -> NoReturn:
        """Raises this exception."""
        raise self

    def exception(self, timeout: Optional[float] = None) -> _InactiveRpcError:
        """This exception."""
        return self

    def traceback(self, timeout: Optional[float] = None) -> Optional[TracebackType]:
        """The traceback of this exception."""
        return _traceback(self)

    def add_callback(self, callback: Callable[[], Any]) -> bool:
        """Always False: the call has ended, and ``callback`` is never called."""
        return False

    def add_done_callback(self, fn: Callable[[Any], Any], timeout: Optional[float] = None) -> None:
        """Calls ``fn`` with this exception at once."""
        fn(self)

    def __repr__(self) -> str:
        return text_of(type(self).__name__, self._outcome)

    __str__ = __repr__


def _traceback(error: BaseException) -> Optional[TracebackType]:
    try:
        raise error
    except RpcError:
        return sys.exc_info()[2]


def inactive(error: reply.RpcError, cause: Optional[BaseException] = None) -> _InactiveRpcError:
    """The exception to raise for ``error``, with its cause, or ``cause``."""
    raised = _InactiveRpcError(outcome_of(error))
    raised.__cause__ = error.__cause__ or cause
    return raised


class _MultiThreadedRendezvous(RpcError, Call, Future):  # noqa: N818
    """A call that runs or has ended: iterate over it if it has a stream of responses; `result` gives the one response
    of another kind. If it ends with another status than OK it is the exception that is raised.

    A call object that is dropped cancels its call, unless the call has ended."""

    def __init__(
        self,
        running: Optional[core.Call],
        until: Optional[float] = None,
        cause: Callable[[], Optional[BaseException]] = lambda: None,
    ) -> None:
        super().__init__()
        self._running = running
        # The deadline, in the time of `time.monotonic`.
        self._until = until
        self._cause = cause
        self._response: Any = None
        self._initial: Optional[Tuple[Any, ...]] = None
        self._cancelled = False

    @classmethod
    def _over(cls, outcome: Outcome, response: Any = None) -> _MultiThreadedRendezvous:
        """A call that has ended."""
        self = cls(None)
        self._response = response
        self._decide(outcome)
        return self

    # ---- The outcome: decided once, by the call's end or by `cancel` ----

    @property
    def _outcome(self) -> Optional[Outcome]:
        found: Optional[Outcome] = self.__dict__.get("_decided")
        return found

    def _decide(self, outcome: Outcome) -> Outcome:
        decided: Outcome = self.__dict__.setdefault("_decided", outcome)
        return decided

    def _ended(self, error: Optional[reply.RpcError]) -> Outcome:
        """Called when the call has ended, with the exception that tells how."""
        running = self._running
        assert running is not None
        if error is None:
            return self._decide(outcome_of(running))
        self.__cause__ = error.__cause__ or self._cause()
        return self._decide(outcome_of(error))

    def _settled(self, timeout: Optional[float] = None) -> Outcome:
        """Waits for the outcome. FutureTimeoutError: it has not come within ``timeout`` seconds."""
        outcome = self._outcome
        if outcome is not None:
            return outcome
        running = self._running
        assert running is not None
        try:
            error = running.exception(timeout)
        except TimedOutError:
            raise FutureTimeoutError() from None
        if error is None:
            self._response = running.result()
        return self._ended(error)

    def is_active(self) -> bool:
        """Whether the call has not ended yet. Does not wait."""
        return self._outcome is None and self._running is not None and self._running.is_active()

    def time_remaining(self) -> Optional[float]:
        """The seconds until the deadline, at least 0; None without a deadline."""
        return None if self._until is None else max(self._until - time.monotonic(), 0)

    def cancel(self) -> bool:
        """Ends the call with CANCELLED, from any thread. False: it had ended before."""
        running = self._running
        if not self.is_active() or running is None:
            return False
        outcome = CANCELLED if self._initial is None else CANCELLED._replace(initial=self._initial)
        # Another thread may have learnt the end meanwhile.
        self._cancelled = self._decide(outcome) is outcome
        running.cancel()
        return self._cancelled

    def add_callback(self, callback: Callable[[], Any]) -> bool:
        """Calls ``callback`` when the call has ended, on a thread on which it may wait. False: it has ended already,
        and ``callback`` is never called."""
        return self._outcome is None and self._running is not None and self._running.add_callback(callback)

    # ---- grpc.Call ----

    def initial_metadata(self) -> Tuple[Any, ...]:
        """Waits for the response headers; empty if there are none."""
        outcome = self._outcome
        if outcome is not None:
            return outcome.initial
        running = self._running
        assert running is not None
        if self._initial is None:
            self._initial = incoming(running.initial_metadata())
        return self._initial

    def trailing_metadata(self) -> Tuple[Any, ...]:
        """Waits for the end, and gives the trailers."""
        return self._settled().trailing

    def code(self) -> StatusCode:
        """Waits for the end, and gives the status code."""
        return self._settled().code

    def details(self) -> Optional[str]:
        """Waits for the end, and gives the status message."""
        return self._settled().details

    def debug_error_string(self) -> Optional[str]:
        """Waits for the end, and gives code and message in one line; None if the error comes from this side."""
        return self._settled().debug

    # ---- grpc.Future ----

    def cancelled(self) -> bool:
        """Whether `cancel` has ended the call."""
        return self._cancelled

    def running(self) -> bool:
        """Whether the call has not ended yet. Does not wait."""
        return self.is_active()

    def done(self) -> bool:
        """Whether the call has ended. Does not wait."""
        return not self.is_active()

    def result(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end, and returns the response; None after a stream. FutureTimeoutError: the end has not come
        within ``timeout`` seconds. FutureCancelledError: `cancel` has ended the call. Raises the call itself if it
        ended with another status than OK."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._response

    def exception(self, timeout: Optional[float] = None) -> Optional[_MultiThreadedRendezvous]:
        """Waits for the end as `result` does, and returns what `result` would raise; None: nothing."""
        if self._settled(timeout).code is StatusCode.OK:
            return None
        if self._cancelled:
            raise FutureCancelledError()
        return self

    def traceback(self, timeout: Optional[float] = None) -> Optional[TracebackType]:
        """Waits for the end as `result` does, and returns the traceback of its exception; None: there is none."""
        error = self.exception(timeout)
        return None if error is None else _traceback(error)

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Calls ``fn`` with this object when the call has ended, on a thread on which it may wait; at once, on this
        thread, if it has ended already."""
        if not self.add_callback(functools.partial(fn, self)):
            fn(self)

    # ---- Iteration ----

    def __iter__(self) -> _MultiThreadedRendezvous:
        return self

    def __next__(self) -> Any:
        outcome, running = self._outcome, self._running
        if outcome is None and running is not None:
            try:
                response = next(running)
            except StopIteration:
                outcome = self._ended(None)
            except reply.RpcError as error:
                outcome = self._ended(error)
            else:
                if self._initial is None:
                    self._initial = incoming(running.initial_metadata())
                return response
        if outcome is None or outcome.code is StatusCode.OK:
            raise StopIteration
        raise self

    def next(self) -> Any:
        """As ``next(call)``."""
        return next(self)

    def __repr__(self) -> str:
        return text_of(type(self).__name__, self._outcome)

    __str__ = __repr__


rendezvous = _MultiThreadedRendezvous
