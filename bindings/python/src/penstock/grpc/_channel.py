"""The channel with grpcio's methods, on one of penstock's."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional, Tuple, Union

from .._channels import channel as core
from .._interceptors.registration import Registration
from . import _names

# Many programs catch these by the names that they have in grpcio's module `_channel`.
from ._calls import _InactiveRpcError as _InactiveRpcError
from ._calls import _MultiThreadedRendezvous as _MultiThreadedRendezvous
from ._connectivity import Subscriptions
from ._credentials import ChannelSecrets, channel_secrets, check_local
from ._interceptors import Added, AddedInterceptor, kinds_of
from ._methods import Deserializer, Place, Serializer, StreamStream, StreamUnary, UnaryStream, UnaryUnary
from ._names import ChannelConnectivity, ChannelCredentials, Compression
from ._options import channel_options, with_tls_options
from ._plugins import url_of

Options = Optional[Iterable[Tuple[str, Any]]]


class Channel(_names.Channel):
    """A channel with grpcio's methods. Each call goes through penstock: ``channel.penstock`` is the
    `penstock.Channel` underneath, with its interceptors, its state and everything else."""

    def __init__(self, target: str, options: Options, secrets: ChannelSecrets, compression: Optional[Compression]):
        # As grpcio does, AttributeError for what is neither str nor bytes.
        name = target.decode() if isinstance(target, bytes) else target.encode().decode()
        chosen = channel_options(options, compression)
        tls = with_tls_options(secrets.tls, chosen)
        check_local(name, secrets)
        self.penstock = core.Channel(name, tls=tls, options=chosen)
        self._added = Added()
        url = url_of(chosen.get("authority"), name)
        self._place = Place(self.penstock, secrets, url, self._added)
        self._subscriptions = Subscriptions(self.penstock)

    def add_interceptor(
        self, interceptor: object, priority: int = 0, **filters: Any
    ) -> Union[Registration, AddedInterceptor]:
        """Adds an interceptor for the calls that are made from now on, also by methods that were made before. It is
        one of penstock's (see `penstock.Channel.add_interceptor`, which has further arguments), or one of grpcio's
        four kinds of client interceptors. Those of grpcio see a call before those of penstock do; among them the
        highest ``priority`` is the first. ``remove()`` of the result removes it."""
        kinds = kinds_of(interceptor)
        if not kinds:
            return self.penstock.add_interceptor(interceptor, priority, **filters)
        if filters:
            raise TypeError(f"interceptors of grpcio have no filters: {', '.join(filters)}")
        return self._added.add(interceptor, priority, kinds)

    def subscribe(
        self, callback: Callable[[ChannelConnectivity], Any], try_to_connect: Optional[bool] = None
    ) -> None:
        """Calls ``callback`` with the state of the channel, and with each new one, on a thread on which it may wait.
        With ``try_to_connect`` an idle channel connects."""
        self._subscriptions.add(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[[ChannelConnectivity], Any]) -> None:
        """Ends a subscription. Does nothing if there is none."""
        self._subscriptions.remove(callback)

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryUnary:
        """The method ``/package.Service/Method``, with one request and one response."""
        return UnaryUnary(self._place, method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryStream:
        """The method ``/package.Service/Method``, with one request and a stream of responses."""
        return UnaryStream(self._place, method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamUnary:
        """The method ``/package.Service/Method``, with a stream of requests and one response."""
        return StreamUnary(self._place, method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamStream:
        """The method ``/package.Service/Method``, with a stream of requests and a stream of responses."""
        return StreamStream(self._place, method, request_serializer, response_deserializer)

    def close(self) -> None:
        """Ends every call with CANCELLED, and closes the connections. Does nothing the second time."""
        self._subscriptions.remove_all()
        self.penstock.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def insecure_channel(target: str, options: Options = None, compression: Optional[Compression] = None) -> Channel:
    """A channel in cleartext. ``options``: pairs of grpcio's names and their values; a RuntimeWarning names those
    without a meaning here."""
    return Channel(target, options, ChannelSecrets(False), compression)


def secure_channel(
    target: str,
    credentials: ChannelCredentials,
    options: Options = None,
    compression: Optional[Compression] = None,
) -> Channel:
    """A channel with ``credentials``, which functions of this package have made. ``options`` as for
    `insecure_channel`."""
    return Channel(target, options, channel_secrets(credentials), compression)
