"""The requests of a call that may have several, on an event loop."""

from __future__ import annotations

import functools
import logging
from contextvars import Context
from typing import Any, AsyncIterable, AsyncIterator, Iterable, Iterator, Optional, Union

from .._calls.codec import Codec
from .._calls.messages import Sent, Serializer, serialize
from .._handles.reply import RpcError, local_error
from .._handles.status import StatusCode
from .loops import Task, cancellations, close
from .running import Running

_logger = logging.getLogger("penstock")

RequestIterable = Union[AsyncIterable[Any], Iterable[Any], None]


class AsyncRequests:
    """Serializes the requests of one call, and reads those of an iterator in a task."""

    def __init__(self, serializer: Serializer, codec: Optional[Codec], context: Context) -> None:
        self._serializer = serializer
        self._codec = codec
        self._context = context

    def serialized(self, request: Any) -> Sent:
        """RpcError: the serializer has raised."""
        return serialize(self._serializer, request, self._codec, self._context)

    def begin(self, running: Running, iterator: Union[AsyncIterable[Any], Iterable[Any]]) -> None:
        """Sends the requests of a list or tuple as long as there is room, and starts a task for those that remain.
        All other iterables are read by that task."""
        rest: Union[AsyncIterator[Any], Iterator[Any]]
        if isinstance(iterator, (list, tuple)):
            rest = iter(iterator)
            first = self._send_ready(running, rest)
            if first is None:
                return
        else:
            first = None
            rest = aiter_of(iterator) if isinstance(iterator, AsyncIterable) else iter(iterator)
        # The task has a copy of the call's context for its whole run.
        within = self._context.copy()
        task = within.run(running.loop.create_task, self._send_all(running, first, rest))
        running.on_end.append(functools.partial(_stop, task))
        task.add_done_callback(functools.partial(_has_ended, running))

    def _send_ready(self, running: Running, iterator: Iterator[Any]) -> Optional[Sent]:
        """Returns the request that had no room; None: all are sent, or the call has ended."""
        try:
            for request in iterator:
                data = self.serialized(request)
                if not running.try_send(data):
                    return data
            running.half_close()
        except RpcError as error:
            running.fail(error)
        return None

    async def _send_all(
        self, running: Running, first: Optional[Sent], rest: Union[AsyncIterator[Any], Iterator[Any]]
    ) -> None:
        try:
            if first is not None:
                await running.send(first)
            if isinstance(rest, AsyncIterator):
                async for request in rest:
                    await running.send(self.serialized(request))
                    if running.code >= 0:
                        return
            else:
                for request in rest:
                    await running.send(self.serialized(request))
                    if running.code >= 0:
                        return
            running.half_close()
        except cancellations():
            raise
        except RpcError as error:
            running.fail(error)
        except BaseException as error:
            _logger.debug("the request iterator raised", exc_info=error)
            running.fail(local_error(StatusCode.UNKNOWN, "Exception iterating requests!", error))
            if not isinstance(error, Exception):
                raise
        finally:
            await close(running.loop, rest)


def aiter_of(iterable: AsyncIterable[Any]) -> AsyncIterator[Any]:
    return iterable.__aiter__()


def _has_ended(running: Running, task: Task) -> None:
    """Called at the end of the task. One that is cancelled before its first step has run no code of its own."""
    if task.cancelled():
        running.cancel("the task that sends the requests was cancelled")


def _stop(task: Task) -> None:
    """Ends the task of a call that has ended: nobody takes the requests any more."""
    if not task.done():
        task.cancel()
