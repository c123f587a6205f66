"""The credentials of one call: an interceptor that asks the plug-ins for metadata before the call is sent."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, NamedTuple, Optional, Sequence

from .._handles import host
from .._handles.context import CallContext, given
from .._handles.errors import GoneError
from .._handles.status import StatusCode
from .._handles.verdict import Verdict
from .._interceptors.hop import Hop
from .._interceptors.interceptor import Interceptor
from .._interceptors.ticket import Ticket
from ._credentials import ChannelSecrets, Plugin, call_secrets
from ._metadata import InvalidMetadata, Pairs, outgoing
from ._names import AuthMetadataContext, AuthMetadataPluginCallback, CallCredentials
from ._outcomes import UNPROTECTED

_logger = logging.getLogger("penstock")
# No other hop sees the credentials: they are added last.
LAST = -(2**31)


class _Fields(NamedTuple):
    service_url: str
    method_name: str


class _Context(_Fields, AuthMetadataContext):
    """The call for which a plug-in is asked."""


class _Answer(AuthMetadataPluginCallback):
    """The function that one plug-in calls once, on any thread."""

    def __init__(self, asking: _Asking) -> None:
        self._asking: Optional[_Asking] = asking
        # May be taken again by a signal handler, which runs in the middle of anything.
        self._lock = threading.RLock()

    def take(self) -> Optional[_Asking]:
        with self._lock:
            asking, self._asking = self._asking, None
        return asking

    def __call__(self, metadata: Any, error: Optional[BaseException]) -> None:
        asking = self.take()
        if asking is None:
            raise RuntimeError("AuthMetadataPluginCallback invoked more than once!")
        asking.answered(metadata, error)


class Authenticate(Interceptor):
    """Asks the plug-ins one after the other, on a thread or in a greenlet for the call, while the call waits. The
    deadline and a cancel end that wait."""

    name = "call credentials"

    def __init__(self, plugins: Sequence[Plugin], service_url: str, method_name: str) -> None:
        self.plugins = plugins
        self.context = _Context(service_url, method_name)
        # The exception that a plug-in has raised or reported.
        self.raised: Optional[BaseException] = None

    def on_start(self, hop: Hop) -> Verdict:
        asking = _Asking(self, hop.ticket(), given(hop._handle))
        host.spawn(asking.next, "penstock credentials")
        return Verdict.PAUSE


class _Asking:
    """How far the plug-ins of a call have been asked."""

    def __init__(self, authenticate: Authenticate, ticket: Ticket, call: Optional[CallContext]) -> None:
        self._authenticate = authenticate
        self._call = call
        self._left = list(authenticate.plugins)
        self._ticket = ticket
        self._pairs: Pairs = []

    def next(self) -> None:
        """Asks the next plug-in; after the last lets the call go on."""
        if not self._left:
            with contextlib.suppress(GoneError):
                metadata = self._ticket.event().metadata
                for name, value in self._pairs:
                    metadata.add(name, value)
                self._ticket.resume()
            return
        plugin = self._left.pop(0)
        answer = _Answer(self)
        try:
            plugin.context.copy().run(plugin.plugin, self._authenticate.context, answer)
        except BaseException as error:
            # Whatever it is, nobody but this thread would end the call.
            _logger.exception("the call credentials %r raised", plugin.plugin)
            if answer.take() is not None:
                self.answered(None, error)

    def answered(self, metadata: Any, error: Optional[BaseException]) -> None:
        """Called with the answer of one plug-in."""
        try:
            if error is None:
                self._pairs += outgoing(metadata)
        except (InvalidMetadata, TypeError, ValueError) as invalid:
            error = invalid if str(invalid) else ValueError("Illegal metadata")
        if error is None:
            self.next()
            return
        self._authenticate.raised = error
        if self._call is not None:
            self._call.raised = error
        with contextlib.suppress(GoneError):
            self._ticket.end(StatusCode.UNAVAILABLE, f"Getting metadata from plugin failed with error: {error}")


class Refuse(Interceptor):
    """Ends a call whose credentials would go over cleartext."""

    name = "call credentials"

    def on_start(self, hop: Hop) -> Verdict:
        hop.deliver_status(StatusCode.UNAUTHENTICATED, UNPROTECTED.details or "")
        return Verdict.TAKE


class Unprotected(Exception):  # noqa: N818
    """The channel has no protection for the credentials of a call."""


def authentication(
    secrets: ChannelSecrets, credentials: Optional[CallCredentials], url: str, path: str
) -> Optional[Authenticate]:
    """The interceptor for a call of the method ``path`` that has ``credentials``, on a channel with ``secrets`` whose
    services are at ``url``. None: neither has credentials of calls. `Unprotected`: they can't be sent there."""
    plugins = secrets.plugins + call_secrets(credentials)
    if not plugins:
        return None
    if not secrets.protects:
        raise Unprotected
    service, _, name = path.rpartition("/")
    return Authenticate(plugins, url + service, name)


def url_of(authority: Optional[str], target: str) -> str:
    """The beginning of the URLs of a channel's services."""
    return f"https://{(authority or target.rpartition('/')[2]).removesuffix(':443')}"
