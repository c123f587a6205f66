"""The channel of grpc.aio on this package's channel."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import weakref
from contextvars import Context, copy_context
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ..._aio.caller import AsyncRequestsArguments, MultiCallable
from ..._aio.channel import Channel as OwnChannel
from ..._aio.running import Running
from ..._calls.keywords import RequestArguments
from ..._calls.messages import Deserializer, Serializer
from ..._handles.errors import ClosedError
from ..._handles.reply import RpcError
from ..._handles.verdict import Connectivity, Kind
from ..._interceptors.registration import Registration
from .._credentials import ChannelSecrets, channel_secrets, check_local
from .._interceptors import Added, AddedInterceptor
from .._names import CallCredentials, ChannelCredentials, state_of
from .._options import TLS, channel_options, with_tls_options
from .._plugins import LAST, Authenticate, Refuse, Unprotected, authentication, url_of
from ._calls import StreamStreamCall, StreamUnaryCall, UnaryStreamCall, UnaryUnaryCall
from ._interceptors import INTERCEPTED, by_kind, kinds_of
from ._theirs import LOCALLY_CANCELLED, UsageError, text_of, theirs

# The kinds whose messages may be left unread.
_STREAMING = (Kind.SERVER_STREAM, Kind.BIDI)
# Those of `insecure_channel`, which takes no credentials.
_NO_SECRETS = ChannelSecrets(False)
_CALLS: Any = {
    Kind.UNARY: UnaryUnaryCall,
    Kind.SERVER_STREAM: UnaryStreamCall,
    Kind.CLIENT_STREAM: StreamUnaryCall,
    Kind.BIDI: StreamStreamCall,
}


class _Method(MultiCallable):
    """A method of a channel."""

    _has_one_request = False

    def __init__(self, channel: Channel, name: str, serializer: Serializer, deserializer: Deserializer) -> None:
        self._bound_to = channel
        self._given = (serializer, deserializer)
        path = text_of(name)
        path = path if path.startswith("/") else f"/{path}"
        super().__init__(channel._channel, channel._channel._bound(path, serializer, deserializer))

    def _call(self, request: Any, **keywords: Any) -> Any:
        interceptors = self._bound_to._added.of(self._kind)
        if not interceptors:
            return self._begin(request, **keywords)
        compression = keywords.pop("compression")
        return INTERCEPTED[self._kind](self, interceptors, request, compression, keywords)

    def _for(self, method: bytes) -> _Method:
        """This method, or the one to which an interceptor has changed the call."""
        if method == self._method.name:
            return self
        return type(self)(self._bound_to, method.decode(), *self._given)

    def _authenticate(self, keywords: Dict[str, Any]) -> None:
        """Lets the plug-ins of the channel's and the call's credentials be asked."""
        credentials = keywords["credentials"]
        if isinstance(credentials, CallCredentials):
            keywords["credentials"] = None
        else:
            # The core takes others, such as the value of authorization.
            credentials = None
        channel = self._bound_to
        authenticate: Union[Authenticate, Refuse, None]
        try:
            authenticate = authentication(channel._secrets, credentials, channel._url, self._method.name.decode())
        except Unprotected:
            if channel._secrets is _NO_SECRETS:
                raise UsageError("Call credentials are only valid on secure channels") from None
            authenticate = Refuse()
        if authenticate is not None:
            keywords["interceptors"] = [(authenticate, LAST)]

    def _begin(self, request: Any, metadata: Any = None, **keywords: Any) -> Any:
        made = _CALLS[self._kind]
        timeout = keywords.get("timeout")
        keywords["metadata"] = tuple(metadata) if metadata is not None else None
        self._authenticate(keywords)
        try:
            if not self._has_one_request:
                call = self.with_requests(AsyncRequestsArguments(request, **keywords), made)
            else:
                running, context = self._run(request, metadata, keywords)
                call = made(running, self._method.deserializer, timeout, self._channel, context)
        except ClosedError as error:
            raise UsageError("Channel is closed.") from error
        if self._kind in _STREAMING:
            self._bound_to._streams.add(call)
        return call

    def _run(self, request: Any, metadata: Any, keywords: Dict[str, Any]) -> Tuple[Running, Context]:
        """Makes a call with one request. If the serializer raises, the call has ended before it has begun, and tells
        of the exception when it is awaited."""
        try:
            if not metadata and _is_plain(keywords):
                plain = self.plainly(request, keywords["timeout"])
                if plain is not None:
                    return plain
            return self.with_request(RequestArguments(request, **keywords))
        except RpcError as error:
            running = Running(self._channel._group, self._name, self._shape)
            running.failure = error
            return running, copy_context()


def _is_plain(keywords: Dict[str, Any]) -> bool:
    return (
        keywords["credentials"] is keywords["wait_for_ready"] is keywords["compression"] is None
        and "interceptors" not in keywords
    )


class _OneRequest(_Method):
    _has_one_request = True

    def __call__(
        self,
        request: Any,
        *,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> Any:
        """Makes the call, and returns the object for it."""
        return self._call(
            request,
            timeout=timeout,
            metadata=metadata,
            credentials=credentials,
            wait_for_ready=wait_for_ready,
            compression=compression,
        )


class _ManyRequests(_Method):
    def __call__(
        self,
        request_iterator: Any = None,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> Any:
        """Makes the call, and returns the object for it."""
        return self._call(
            request_iterator,
            timeout=timeout,
            metadata=metadata,
            credentials=credentials,
            wait_for_ready=wait_for_ready,
            compression=compression,
        )


class UnaryUnaryMultiCallable(_OneRequest):
    _kind = Kind.UNARY


class UnaryStreamMultiCallable(_OneRequest):
    _kind = Kind.SERVER_STREAM


class StreamUnaryMultiCallable(_ManyRequests):
    _kind = Kind.CLIENT_STREAM


class StreamStreamMultiCallable(_ManyRequests):
    _kind = Kind.BIDI


class Channel:
    """A ``grpc.aio.Channel``, for the event loop that runs now, or else the thread's own."""

    def __init__(
        self,
        target: str,
        options: Optional[Iterable[Tuple[str, Any]]],
        secrets: ChannelSecrets,
        compression: Any,
        interceptors: Optional[Sequence[Any]],
    ) -> None:
        at_first = by_kind(interceptors or ())
        self._added = Added(at_first)
        # Google's clients append interceptors of their own to these lists, which grpcio's channel has, too.
        self._unary_unary_interceptors = at_first[Kind.UNARY]
        self._unary_stream_interceptors = at_first[Kind.SERVER_STREAM]
        self._stream_unary_interceptors = at_first[Kind.CLIENT_STREAM]
        self._stream_stream_interceptors = at_first[Kind.BIDI]
        self._secrets = secrets
        name = text_of(target)
        check_local(name, secrets)
        chosen = channel_options(options, compression)
        tls = with_tls_options(secrets.tls, chosen)
        self._url = url_of(chosen.get("authority"), name)
        self._channel = OwnChannel(name, tls=tls, options=chosen, loop=_working_loop())
        # The calls whose messages may be left unread, also after the end has come.
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_closed = False

    @property
    def penstock(self) -> OwnChannel:
        """The channel of `penstock.aio` on which the calls are made, for example to add interceptors of this
        package."""
        return self._channel

    def add_interceptor(
        self, interceptor: object, priority: int = 0, **filters: Any
    ) -> Union[Registration, AddedInterceptor]:
        """Adds an interceptor for the calls that are made from now on, also by methods that were made before. It is
        one of penstock's (see `penstock.Channel.add_interceptor`, which has further arguments), or one of grpc.aio's
        four kinds of client interceptors. Those of grpc.aio see a call before those of penstock do; among them the
        highest ``priority`` is the first, and those with which the channel was made have 0. ``remove()`` of the
        result removes it."""
        kinds = kinds_of(interceptor)
        if not kinds:
            return self._channel.add_interceptor(interceptor, priority, **filters)
        if filters:
            raise TypeError(f"interceptors of grpc.aio have no filters: {', '.join(filters)}")
        return self._added.add(interceptor, priority, kinds)

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self, grace: Optional[float] = None) -> None:
        """Closes the channel. Calls that run may go on for ``grace`` seconds, and are then cancelled."""
        group = self._channel._group
        # An earlier close may have been cancelled while it waited.
        if self._is_closed and not group.running and all(call.done() for call in self._streams):
            return
        if grace and grace < 0:
            raise ValueError(f"grace must be non-negative, got {grace}.")
        self._is_closed = True
        if grace:
            self._channel._close_gracefully(None)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._all_over(), grace)
        for running in list(group.running):
            running.cancel(LOCALLY_CANCELLED)
        for call in list(self._streams):
            call.cancel()
        await self._channel.close()

    async def _all_over(self) -> None:
        """Waits until all calls have ended, and the messages have been read of those that the program still has."""
        group = self._channel._group
        await group.ended()
        waits = []
        for call in list(self._streams):
            if not call.done():
                over = group.loop.create_future()
                settle = functools.partial(_settle, over)
                call.add_done_callback(settle)
                dropped = functools.partial(group.loop.call_soon_threadsafe, settle)
                waits.append((over, weakref.ref(call, dropped)))
        call = None
        for over, _ in waits:
            await over

    def get_state(self, try_to_connect: bool = False) -> Any:
        """The member of ``grpc.ChannelConnectivity``."""
        state = Connectivity.SHUTDOWN if self._is_closed else self._channel.connectivity
        if try_to_connect and state is Connectivity.IDLE:
            self._channel.connect()
        return state_of(int(state))

    async def wait_for_state_change(self, last_observed_state: Any) -> None:
        """Waits until the state is another one."""
        if self._is_closed:
            raise UsageError("Channel is closed.")
        await self._channel.wait_connectivity(Connectivity(last_observed_state.value[0]))

    async def channel_ready(self) -> None:
        """Makes the channel connect, and waits until it has."""
        ready = state_of(int(Connectivity.READY))
        state = self.get_state(try_to_connect=True)
        while state != ready:
            await self.wait_for_state_change(state)
            state = self.get_state(try_to_connect=True)

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryUnaryMultiCallable:
        """The method ``/package.Service/Method``."""
        return UnaryUnaryMultiCallable(self, method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryStreamMultiCallable:
        """The method ``/package.Service/Method``."""
        return UnaryStreamMultiCallable(self, method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamUnaryMultiCallable:
        """The method ``/package.Service/Method``."""
        return StreamUnaryMultiCallable(self, method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamStreamMultiCallable:
        """The method ``/package.Service/Method``."""
        return StreamStreamMultiCallable(self, method, request_serializer, response_deserializer)


theirs.Channel.register(Channel)
for _ours in (UnaryUnaryMultiCallable, UnaryStreamMultiCallable, StreamUnaryMultiCallable, StreamStreamMultiCallable):
    getattr(theirs, _ours.__name__).register(_ours)


def _settle(over: asyncio.Future[None], _: object) -> None:
    if not over.done():
        over.set_result(None)


def _working_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.get_event_loop()


def insecure_channel(
    target: str,
    options: Optional[Iterable[Tuple[str, Any]]] = None,
    compression: Any = None,
    interceptors: Optional[List[Any]] = None,
) -> Channel:
    """A channel without TLS."""
    return Channel(target, options, _NO_SECRETS, compression, interceptors)


def secure_channel(
    target: str,
    credentials: Union[TLS, ChannelCredentials],
    options: Optional[Iterable[Tuple[str, Any]]] = None,
    compression: Any = None,
    interceptors: Optional[List[Any]] = None,
) -> Channel:
    """A channel with ``credentials``: those that functions of `penstock.grpc` have made, or ``tls`` of
    `penstock.Channel`. TypeError: they are neither; grpcio's own can't be read."""
    return Channel(target, options, _secrets_of(credentials), compression, interceptors)


def _secrets_of(credentials: Union[TLS, ChannelCredentials]) -> ChannelSecrets:
    if credentials is True or isinstance(credentials, Mapping):
        return ChannelSecrets(credentials if credentials is True else dict(credentials))
    if not isinstance(credentials, ChannelCredentials):
        raise TypeError(f"expected credentials of penstock.grpc, True or a mapping, not {credentials!r}")
    return channel_secrets(credentials)
