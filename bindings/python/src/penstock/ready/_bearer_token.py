"""The interceptors that get tokens and send them."""

from __future__ import annotations

import contextlib
import functools
import os
from contextvars import Context, copy_context
from typing import Any, Callable, Optional, Tuple, Union

from .. import _raw
from .._handles import host
from .._handles.arguments import c_string, milliseconds
from .._handles.context import Scoped, run
from .._handles.ctrl_c import recover
from .._handles.errors import LibraryError, check
from .._handles.objects import Objects, forget, own, registry
from .._handles.reports import report, tell
from .._handles.status import CodeLike, StatusCode, code_number
from ._base import Ready, ms


class TokenRequest:
    """A request for a token: answer it once, with `complete` or `fail`, on any thread. A request that is dropped
    without an answer fails."""

    def __init__(self, number: int, refused: Optional[bytes]) -> None:
        self._number = number
        # The token that the server has refused and that the new token is to replace; None if none was refused.
        self.refused = None if refused is None else refused.decode()
        own(self, _give_up, number)

    def complete(self, token: str, expires_in: Optional[float] = None) -> None:
        """Answers with a token that is valid for ``expires_in`` seconds (None: until a server refuses it; 0: only
        for the calls that wait now).

        InvalidArgumentError: the token has characters that a header can't have; the request stays open.
        AlreadyError: the request has been answered, or another request has been made after ``refresh_timeout``.
        GoneError: the interceptor has been freed.
        """
        lifetime = -1 if expires_in is None else milliseconds(expires_in)
        text = c_string(token, "a token")
        check(_raw.penstock_token_complete(self._number, text, lifetime), "the token can't be taken")

    def fail(self, code: CodeLike = StatusCode.UNAVAILABLE, message: str = "") -> None:
        """Answers that there is no token: the calls that wait end with this status. AlreadyError, GoneError: see
        `complete`."""
        text = c_string(message, "a message")
        check(_raw.penstock_token_fail(self._number, code_number(code), text), "the failure can't be taken")


def _give_up(number: int) -> None:
    """Fails a request whose object has been collected. Does nothing if the request was answered."""
    _raw.penstock_token_fail(number, StatusCode.UNAVAILABLE.number, b"the token source gave no answer")


# A source returns a token, or (token, seconds), or None if it answers the request later.
Source = Callable[[TokenRequest], Union[str, Tuple[str, Optional[float]], None]]


class _Asked(Scoped):
    """The object in the registry through which C calls a token source."""

    def __init__(self, source: Source, in_thread: bool, context: Context, kept: Objects) -> None:
        super().__init__(context, kept)
        self.source = source
        self.in_thread = in_thread

    def ask(self, request: TokenRequest) -> None:
        if not self.in_thread:
            return self.answer(request)
        try:
            host.spawn(functools.partial(self.answer, request), "penstock-token")
        except BaseException as error:
            self._failed(request, error, report)

    def answer(self, request: TokenRequest) -> None:
        try:
            answer = run(self.context, self.source, request)
            if isinstance(answer, tuple):
                request.complete(*answer)
            elif answer is not None:
                request.complete(answer)
        except BaseException as error:
            # On the source's own thread no Python code waits in which the exception could be raised again.
            self._failed(request, error, tell if self.in_thread else report)

    def _failed(self, request: TokenRequest, error: BaseException, tell_of: Callable[..., None]) -> None:
        run(self.context, tell_of, "BearerToken", "source", error)
        # The request may have been answered already.
        with contextlib.suppress(LibraryError):
            request.fail(StatusCode.UNAVAILABLE, f"the token source raised {type(error).__name__}")


def _ask(request: int, refused: Optional[bytes], number: Optional[int]) -> None:
    asked = registry.get(number)
    if isinstance(asked, _Asked):
        asked.ask(TokenRequest(request, refused))


class BearerToken(Ready):
    """Gets a token from ``source``, sends it with each call, and gets another when it has expired or was refused.

    Calls that come while there is no token wait; one request serves them all. When a call ends with UNAUTHENTICATED,
    its token is discarded, and the call is started again once, with the next token. A call whose metadata has
    ``header`` ("authorization" if not given) already goes on unchanged.

    ``source`` gets a `TokenRequest`, and returns a token, or (token, seconds), or None if it answers the request
    later. It runs on a thread or in a greenlet of its own, so it may wait; with ``in_thread=False`` it runs like a
    callback, and must not wait. ``refresh_early``: how long before a token expires the next one is requested, while
    the old one is still used. ``refresh_timeout``: how long a call waits for a token; 0 is without limit.
    ``replay_bytes``: a call that has sent more is not started again. ``allow_cleartext``: if False, a call on a
    channel without TLS ends with UNAUTHENTICATED, and no token is fetched; a unix socket counts as TLS.
    """

    def __init__(
        self,
        source: Source,
        *,
        in_thread: bool = True,
        header: Optional[str] = None,
        scheme: Optional[str] = None,
        refresh_early: Optional[float] = None,
        refresh_timeout: Optional[float] = None,
        replay_bytes: Optional[int] = None,
        allow_cleartext: Optional[bool] = None,
    ) -> None:
        self._source = source
        self._in_thread = in_thread
        self._context = copy_context()
        super().__init__(
            header=header,
            scheme=scheme,
            refresh_early_ms=ms(refresh_early),
            refresh_timeout_ms=ms(refresh_timeout),
            replay_bytes=replay_bytes,
            allow_cleartext=allow_cleartext,
        )

    def _make(self, options: bytes, table: Any) -> None:
        number = registry.add(_Asked(self._source, self._in_thread, self._context, self._kept))
        self._made_by(_raw.penstock_ready_bearer_token, table, options, _ask_trampoline, number, forget)


recover(_ask, lambda given: None)
_ask_trampoline = _raw.penstock_token_source(_ask)


class TokenFile(Ready):
    """Sends the token that stands in ``file``, as `BearerToken` does. The file is replaced from time to time, such as
    that of a service account in a pod of Kubernetes.

    ``reread``: how old a token may be before the file is read again, in seconds (default: 60). If it can't be read
    then, the old token is used for as long again. The other arguments are those of `BearerToken`. A call that has no
    token ends with UNAVAILABLE, whose details name the file and the reason.
    """

    def __init__(
        self,
        file: Union[str, os.PathLike[str]],
        *,
        reread: Optional[float] = None,
        header: Optional[str] = None,
        scheme: Optional[str] = None,
        replay_bytes: Optional[int] = None,
        allow_cleartext: Optional[bool] = None,
    ) -> None:
        super().__init__(
            file=os.fspath(file),
            reread_ms=ms(reread),
            header=header,
            scheme=scheme,
            replay_bytes=replay_bytes,
            allow_cleartext=allow_cleartext,
        )

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_token_file, table, options)
