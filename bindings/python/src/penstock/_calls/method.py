"""A method of a channel, and the options of its calls, for every style of call."""

from __future__ import annotations

from contextvars import Context
from typing import Callable, NamedTuple, Optional, Protocol, Tuple

from .._handles.arguments import c_string
from .._handles.objects import Objects
from .._handles.verdict import Kind
from .codec import Codec
from .encoding import Codec as Encoding
from .keywords import CallKeywords, Interceptors
from .messages import Deserializer, Serializer
from .options import CallOptions, call_options


class Method(NamedTuple):
    name: bytes
    serializer: Serializer
    deserializer: Deserializer
    # The name of the encoding, if the channel has a codec; "" is the usual one.
    subtype: Optional[str] = None


class Connected:
    """The base of the objects on which calls are made."""

    # The codec whose functions replace the serializers of each method; None: they stay.
    _encoding: Optional[Encoding] = None

    @property
    def _calls_back(self) -> bool:
        """Whether a call may have callbacks that are Python functions, besides those of its own interceptors."""
        raise NotImplementedError

    @property
    def _keeps(self) -> Tuple[Objects, ...]:
        """The objects that a running call keeps."""
        raise NotImplementedError

    @property
    def _sees_objects(self) -> bool:
        """Whether a call may have hops at the object level, besides those of its own interceptors."""
        raise NotImplementedError

    def _register(self, options: CallOptions, interceptors: Interceptors) -> None:
        """Registers the interceptors of one call on its options."""
        raise NotImplementedError

    def _bound(self, method: str, serializer: Serializer, deserializer: Deserializer) -> Method:
        """The method ``/package.Service/Method`` with its serializers, or with those of the channel's codec."""
        name = c_string(method, "a method")
        encoding = self._encoding
        if encoding is None:
            return Method(name, serializer, deserializer)
        return Method(name, encoding._serializer(serializer), encoding._deserializer(deserializer), encoding.name)


class BoundMethod:
    """One method of a channel, to be called any number of times, from any thread.

    A wrong argument raises TypeError or ValueError (`InvalidArgumentError` is a ValueError), and no call is made.
    """

    _kind: Kind

    def __init__(self, channel: Connected, method: Method) -> None:
        self._channel = channel
        self._method = method

    def _codec(self, keywords: CallKeywords, context: Context) -> Optional[Codec]:
        """The codec of a call; None if no interceptor sees objects, or if the method has no serializers."""
        method = self._method
        if method.serializer is None and method.deserializer is None:
            return None
        if not self._channel._sees_objects and not (keywords.interceptors and keywords.sees_objects):
            return None
        return Codec(method.serializer, method.deserializer, context, method.subtype)

    def _options(
        self,
        keywords: CallKeywords,
        codec: Optional[Codec],
        context: Context,
        lent: bool = False,
        over: Optional[Callable[[], None]] = None,
    ) -> CallOptions:
        """The options of a call. Only a call with callbacks, with a codec, or with ``over`` (see `CallContext`) has
        its context there, because options with a context can't be kept for other calls."""
        if keywords.content_subtype is None:
            keywords.content_subtype = self._method.subtype
        channel = self._channel
        has_context = codec is not None or bool(keywords.interceptors) or channel._calls_back or over is not None
        options = call_options(keywords, codec, context if has_context else None, lent, channel._keeps, over)
        if keywords.interceptors:
            channel._register(options, keywords.interceptors)
        return options


class ChannelLike(Protocol):
    """The part of `Channel` that `Hop.set_channel` uses."""

    target: str
    _handle: int
