"""The base of every object that shows the request of a call to an interceptor."""

from __future__ import annotations

from ctypes import byref, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, Callable, List, Optional, Union

from .. import _raw
from .._calls.codec import Boxed, content, fill
from .._handles.arguments import c_string, milliseconds, whole_number
from .._handles.errors import StateError, check_hop
from .._handles.metadata import Metadata
from .._handles.objects import Uncopied
from .._handles.verdict import Idempotency
from .._raw import constants as c

_LARGEST = 2**31 - 1


class RequestFields(Uncopied):
    """The request of a call. It may be changed: through a `Hop` in `on_start`, and, if the interceptor has
    ``replay_bytes``, in `on_status`, where it is the request that a RESTART sends; through an `Event` or a
    `Completion` while such a status waits; through an `InterceptedCall` before `next`, and after a `next` that has
    returned a status. At other times a change raises StateError."""

    __slots__ = ()
    # The handle of the hop.
    _handle: int

    def _shown(self) -> object:
        """Called before each use of the request; raises if it must not be used now."""
        raise NotImplementedError

    def _request(self) -> int:
        self._shown()
        return int(_raw.penstock_hop_request(self._handle))

    def _set(self, function: Callable[[int, Any], int], value: Any, words: str) -> None:
        check_hop(self._handle, function(self._request(), value), words)

    def _text(self, function: Callable[[int], Optional[bytes]]) -> str:
        """The text that a getter gives. StateError: the request can't be read here."""
        text = function(self._request())
        if text is None:
            raise StateError(c.E_STATE, "the request can't be read here")
        return text_of(text)

    def _number(self, function: Callable[[int, Any], int], out: Union[c_int32, c_int64, c_size_t, c_uint32]) -> int:
        """The number that a getter stores in ``out``."""
        check_hop(self._handle, function(self._request(), byref(out)), "the request can't be read here")
        return out.value

    @property
    def request_metadata(self) -> Metadata:
        """The request's metadata: in `create`, and where the request may be changed. StateError elsewhere."""
        pointer = _raw.penstock_request_metadata(self._request())
        if not pointer:
            raise StateError(c.E_STATE, "there is no request metadata here")
        return Metadata._view(pointer, self._shown)

    @property
    def method(self) -> str:
        """The method, ``/package.Service/Method``; can be set."""
        return self._text(_raw.penstock_request_method)

    @method.setter
    def method(self, method: str) -> None:
        text = c_string(method, "a method")
        self._set(_raw.penstock_request_set_method, text, f"the method can't be set to {method!r}")

    @property
    def authority(self) -> str:
        """The authority that is sent; can be set."""
        return self._text(_raw.penstock_request_authority)

    @authority.setter
    def authority(self, authority: str) -> None:
        text = c_string(authority, "an authority")
        self._set(_raw.penstock_request_set_authority, text, f"authority {authority!r} can't be set")

    @property
    def deadline(self) -> Optional[float]:
        """The seconds until the deadline, 0 if it has passed, None if there is none; can be set."""
        left = self._number(_raw.penstock_request_deadline_ms, c_int64())
        return None if left < 0 else left / 1000

    @deadline.setter
    def deadline(self, seconds: Optional[float]) -> None:
        left = -1 if seconds is None else milliseconds(seconds)
        self._set(_raw.penstock_request_set_deadline_ms, left, "the deadline can't be set")

    @property
    def compression(self) -> str:
        """The compression of sent messages, ``"identity"``, ``"gzip"``, ``"deflate"``, ``"zstd"`` or the name of a
        `Compressor`; can be set."""
        return self._text(_raw.penstock_request_compression)

    @compression.setter
    def compression(self, name: str) -> None:
        text = c_string(name, "a compression")
        self._set(_raw.penstock_request_set_compression, text, f"compression {name!r} can't be set")

    @property
    def max_receive_message_bytes(self) -> int:
        """The limit on one received message; can be set."""
        return self._number(_raw.penstock_request_max_receive_message_bytes, c_size_t())

    @max_receive_message_bytes.setter
    def max_receive_message_bytes(self, size: int) -> None:
        whole_number(size, "a limit", 0, _LARGEST)
        self._set(_raw.penstock_request_set_max_receive_message_bytes, size, "the limit can't be set")

    @property
    def max_send_message_bytes(self) -> int:
        """The limit on one message as it leaves the last hop; can be set."""
        return self._number(_raw.penstock_request_max_send_message_bytes, c_size_t())

    @max_send_message_bytes.setter
    def max_send_message_bytes(self, size: int) -> None:
        whole_number(size, "a limit", 0, _LARGEST)
        self._set(_raw.penstock_request_set_max_send_message_bytes, size, "the limit can't be set")

    @property
    def idempotency(self) -> Idempotency:
        """How safe it is to make the call twice. Connect calls a unary method without side effects by HTTP GET, see
        `http_method`. Can be set."""
        return Idempotency(self._number(_raw.penstock_request_idempotency, c_int32()))

    @idempotency.setter
    def idempotency(self, idempotency: Idempotency) -> None:
        wanted = Idempotency(idempotency)
        self._set(_raw.penstock_request_set_idempotency, wanted, "the idempotency can't be set")

    @property
    def previous_attempts(self) -> int:
        """How many attempts by a retry or hedging policy came before this one, as the server is told."""
        return self._number(_raw.penstock_request_previous_attempts, c_uint32())

    @property
    def is_transparent_retry(self) -> bool:
        """Whether this attempt repeats, by the library's own decision, one that the server has certainly not
        processed (gRFC A6)."""
        return bool(self._number(_raw.penstock_request_is_transparent_retry, c_int32()))

    @property
    def http_method(self) -> str:
        """The HTTP method of the request: ``"GET"`` for a unary call over Connect whose `idempotency` is
        NO_SIDE_EFFECTS, unless `allows_get` is False; else ``"POST"``. A message that makes the URL too
        long (``max_get_url_bytes``) turns a GET into a POST: in `on_send` at the bytes level this is known, unless
        compression may shorten the message; in earlier callbacks it is not. Once the request was sent, this is the
        method with which it was sent."""
        return self._text(_raw.penstock_request_http_method)

    @property
    def allows_get(self) -> bool:
        """Whether the request may be an HTTP GET, which has the message in its URL, where servers and proxies may log
        and cache it. Can be set."""
        return bool(self._number(_raw.penstock_request_allows_get, c_int32()))

    @allows_get.setter
    def allows_get(self, allows: bool) -> None:
        self._set(_raw.penstock_request_set_allows_get, int(bool(allows)), "allows_get can't be set")

    @property
    def content_subtype(self) -> str:
        """The name of the messages' encoding in the content-type: ``"json"`` for ``application/grpc+json``, or with
        Connect for ``application/json``; ``""`` for the usual one. Can be set, which leaves the messages as they are.
        A content-type of the response other than ``application/grpc`` is among the response's headers."""
        return self._text(_raw.penstock_request_content_subtype)

    @content_subtype.setter
    def content_subtype(self, subtype: str) -> None:
        text = c_string(subtype, "a content subtype")
        self._set(_raw.penstock_request_set_content_subtype, text, f"the content subtype can't be set to {subtype!r}")

    @property
    def user_agent(self) -> str:
        """The ``user-agent`` that this call sends instead of its channel's; ``""`` if it sends the channel's. A text
        that is set is put before the library's own name; ``""`` restores the channel's."""
        return self._text(_raw.penstock_request_user_agent)

    @user_agent.setter
    def user_agent(self, application: str) -> None:
        text = c_string(application, "a user agent")
        self._set(_raw.penstock_request_set_user_agent, text, f"the user agent can't be set to {application!r}")

    @property
    def wait_for_ready(self) -> bool:
        """Whether the call waits for a connection, however long it takes. Otherwise it fails with UNAVAILABLE where
        the channel can't connect. Can be set."""
        return bool(self._number(_raw.penstock_request_wait_for_ready, c_int32()))

    @wait_for_ready.setter
    def wait_for_ready(self, wait: bool) -> None:
        self._set(_raw.penstock_request_set_wait_for_ready, int(bool(wait)), "wait_for_ready can't be set")

    @property
    def request_messages(self) -> List[Any]:
        """The messages that a RESTART, or a further `InterceptedCall.next`, sends again: in `on_status` of an
        interceptor with ``replay_bytes``, while that status waits, and after a `next` that has returned a status.
        StateError elsewhere. `set_request_message` replaces one of them."""
        found: List[Any] = []
        request = self._request()
        while True:
            message = c_void_p()
            result = _raw.penstock_request_message(request, len(found), byref(message))
            if result == c.E_NOT_FOUND:
                return found
            check_hop(self._handle, result, "the request's messages can't be read here")
            assert message.value is not None
            try:
                found.append(content(message.value))
            finally:
                _raw.penstock_message_release(message)

    def set_request_message(self, index: int, data: Any) -> None:
        """Replaces the message at ``index`` of `request_messages`. NotFoundError: there is no such message.
        LibraryError: the request would be over ``replay_bytes``."""
        request = self._request()
        codec = _raw.penstock_hop_codec(self._handle) if Boxed.ever else None
        message = c_void_p()
        try:
            fill(message, data, codec)
            result = _raw.penstock_request_set_message(request, whole_number(index, "an index", 0, _LARGEST), message)
            check_hop(self._handle, result, "the request's message can't be replaced")
        finally:
            _raw.penstock_message_release(message)

    def prefer(self, name: Optional[str], value: str = "", *, required: bool = False) -> None:
        """Asks for a server whose attribute ``name``, which the resolver gives, is ``value``. If such servers are
        ready, one of them is picked. If no such server is ready, any other server is picked; but if ``required``, the
        call waits as long as such a server is connecting, and otherwise ends with UNAVAILABLE. None as the name takes
        the preference back."""
        encoded = None if name is None else c_string(name, "the name of an attribute")
        text = c_string(value, "the value of an attribute")
        result = _raw.penstock_request_prefer(self._request(), encoded, text, int(required))
        check_hop(self._handle, result, "an address can't be asked for")

    @property
    def has_credentials(self) -> bool:
        """Whether the call has credentials; their value is not shown."""
        return bool(self._number(_raw.penstock_request_has_credentials, c_int32()))

    def set_credentials(self, authorization: Optional[str]) -> None:
        """Replaces the call's credentials by this value of ``authorization``, which is sent over TLS only; None
        removes them. Without TLS the call ends with UNAUTHENTICATED."""
        text = None if authorization is None else c_string(authorization, "credentials")
        self._set(_raw.penstock_request_set_credentials, text, "the credentials can't be set")


def text_of(text: Optional[bytes]) -> str:
    """Decodes a text of the library; NULL gives an empty text."""
    return (text or b"").decode("utf-8", "replace")
