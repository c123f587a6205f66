"""The steps of one call that may wait, whatever code it is that waits."""

from __future__ import annotations

from typing import Deque, Optional, Protocol, Sequence

from .._handles.metadata import ReceivedMetadata
from .messages import Data, Sent


class Line(Protocol):
    """A call, as the code sees it that waits for it. Any thread may use it."""

    # The ``penstock_call *``, which somebody else releases.
    handle: int
    # Messages that `receive` would return without any other work, so that a reader may take them itself.
    kept: Deque[Data]

    def with_handle(self, handle: int) -> Line:
        """Another reference to the call."""

    def send(self, data: Sent) -> bool:
        """Sends a message, and waits until there is room for it. False: the call has ended. RpcError: the message is
        over the limit."""

    def send_all(self, batch: Sequence[Sent]) -> bool:
        """As `send`, for several messages, in their order."""

    def receive(self) -> Optional[Data]:
        """Waits for the next message. None: there are no more."""

    def headers(self, owner: object) -> Optional[ReceivedMetadata]:
        """Waits for the response headers, which may need ``owner``, the owner of the call. None: the call has ended
        without them."""

    def status(self, timeout: Optional[float] = None) -> int:
        """Waits for the end, up to ``timeout`` seconds (None: without limit), and reads no messages. Returns a
        ``penstock_reply *``, which the caller releases. TimedOutError: the call has not ended. WouldDeadlockError:
        this code runs in a callback on the thread that drives, and so can't wait."""

    def finish(self) -> int:
        """As `status`, but for a call with one response: half-closes it if necessary."""

    def cancel(self, reason: bytes) -> None:
        """Ends the call with CANCELLED, and discards the unread messages. Does not wait."""
