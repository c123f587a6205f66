"""The requests of a call that may have several."""

from __future__ import annotations

import functools
import logging
from contextvars import Context
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence

from .. import _raw
from .._handles.reply import RpcError, local_error
from .._handles.status import StatusCode
from .batch import MOST, SIZE, tried_all
from .codec import Codec
from .messages import Sent, Serializer, serialize
from .steps import half_close

_logger = logging.getLogger("penstock")


class Requests:
    """The requests of a call that may have several, and the failure if reading or serializing one has raised. The
    iterator has one copy of the call's context for its whole run."""

    def __init__(
        self, iterator: Iterable[Any], serializer: Serializer, codec: Optional[Codec], context: Context
    ) -> None:
        # Reading a list or a tuple runs no code of the program.
        self._within = None if type(iterator) in (list, tuple) else context.copy()
        self._iterator: Iterator[Any] = (
            iter(iterator) if self._within is None else self._within.run(lambda: iter(iterator))
        )
        # A list or tuple is in memory already, so reading it never waits.
        self.is_ready = isinstance(iterator, (list, tuple))
        self._serializer = serializer
        self._context = context
        self._codec = codec
        self.failure: Optional[RpcError] = None

    def __iter__(self) -> Iterator[Sent]:
        """Yields the messages to send. If the iterator or the serializer raises, this sets `failure` and ends."""
        while True:
            try:
                within = self._within
                request = next(self._iterator) if within is None else within.run(next, self._iterator)
            except StopIteration:
                return
            except Exception as error:
                self.log(_logger.debug, "the request iterator raised", error)
                self.fail(error)
                return
            try:
                yield serialize(self._serializer, request, self._codec, self._context)
            except RpcError as error:
                self.failure = error
                return

    def batches(self) -> Iterator[List[Sent]]:
        """Yields the messages to send, several at once only if reading the next one runs no code of the program: an
        iterator may wait for the answer to the message before."""
        most = 1 if self._within is not None else MOST
        batch: List[Sent] = []
        size = 0
        for data in self:
            batch.append(data)
            size += len(data) if isinstance(data, bytes) else SIZE
            if len(batch) >= most or size >= SIZE:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def log(self, log: Callable[..., None], text: str, error: BaseException) -> None:
        self._context.copy().run(functools.partial(log, text, exc_info=error))

    def fail(self, error: BaseException) -> None:
        """Notes that reading the requests has raised ``error``."""
        self.failure = local_error(StatusCode.UNKNOWN, "Exception iterating requests!", error)

    def send_ready(self, call: int) -> Optional[Sequence[Sent]]:
        """Sends requests as long as there is room, and half-closes after the last. Returns None if nothing is left to
        send, or if the call has ended or a request has failed; otherwise requests that had no room."""
        try:
            for batch in self.batches():
                left = tried_all(call, batch)
                if left is None:
                    return None
                if left:
                    return left
        except RpcError as error:
            self.failure = error
        self.end(call)
        return None

    def end(self, call: int) -> None:
        """Half-closes after the last request; cancels the call if a request has failed."""
        if self.failure is None:
            half_close(call)
        else:
            _raw.penstock_call_cancel(call, self.failure.details().encode())
