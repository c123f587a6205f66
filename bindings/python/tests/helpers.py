"""What the tests of interceptors share."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Tuple

from penstock import Channel, Hop, Interceptor

EVENTS = (
    "on_start",
    "on_send",
    "on_half_close",
    "on_headers",
    "on_receive",
    "on_status",
    "on_cancel",
    "on_demand",
    "on_sent",
)


class Only(Interceptor):
    """An interceptor with the callbacks it is given."""

    def __init__(self, **callbacks: Callable[[Hop], Any]) -> None:
        for callback, function in callbacks.items():
            setattr(self, callback, function)


def unary(channel: Channel, data: bytes = b"x", **options: Any) -> Any:
    return channel.unary_unary("/penstock.Echo/Unary")(data, **options)


def bidi(channel: Channel, messages: List[bytes]) -> List[bytes]:
    return list(channel.stream_stream("/penstock.Echo/Bidi")(messages))


def recorder(log: List[Any], name: str = "", events: Tuple[str, ...] = EVENTS) -> Only:
    def seen(event: str) -> Callable[[Hop], None]:
        return lambda hop: log.append((name, event) if name else event)

    interceptor = Only(**{event: seen(event) for event in events})
    interceptor.name = name
    return interceptor


def seen(view: Any, name: str) -> List[str]:
    """What the server saw of a request header."""
    return [value for key, value in view["metadata"] if key == name]


def on_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread
