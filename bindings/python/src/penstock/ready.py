"""Ready-made interceptors: they run in the library, at C's speed. Add them like any other interceptor:

    metrics = penstock.ready.Metrics()
    channel.add_interceptor(metrics, priority=100)
    print(metrics.prometheus())

One object may be added in several places; all of them share its state. Times are in seconds. An option that is not
given has the default that docs/options.md names. InvalidArgumentError: the library refuses an option; its ``path``
names it.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import functools
import json
import logging
import weakref
from contextvars import Context, copy_context
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from . import _raw
from ._handles import host
from ._handles.arguments import c_string, milliseconds
from ._handles.context import Scoped, run
from ._handles.ctrl_c import recover
from ._handles.errors import LibraryError, check, check_with
from ._handles.fork import process
from ._handles.metadata import owned_text
from ._handles.objects import Keeper, Objects, forget, own, registry
from ._handles.reports import report, tell
from ._handles.status import CodeLike, StatusCode, code_number
from ._interceptors.interceptor import Native

__all__ = [
    "BearerToken",
    "FaultInjection",
    "HeaderRules",
    "Logging",
    "Metrics",
    "RateLimit",
    "ResponseCache",
    "TokenRequest",
    "TraceContext",
]


def _drop(table: Any, made_by: int) -> None:
    if process() == made_by:
        table.finalizer(table.user_data)
    # The interceptor may live on, see `own`: it can't be registered any more.
    ctypes.memset(byref(table), 0, ctypes.sizeof(table))


class _Ready(Keeper, Native):
    """Owns a table that is never registered itself; each registration gets a table that shares its state."""

    may_have_function = False

    def __init__(self, **options: object) -> None:
        self._options = {key: value for key, value in options.items() if value is not None}
        self._kept: Objects = {}
        self._table: Any = None
        self._process = 0
        self._filled()

    def _filled(self) -> Any:
        """The table. A forked child in which the parent's handles do not work makes a new table, because the parent's
        threads may have been changing its state during the fork."""
        if self._process != process():
            table = _raw.penstock_interceptor(struct_size=ctypes.sizeof(_raw.penstock_interceptor))
            self._make(c_string(json.dumps(self._options), "options"), table)
            self._table, self._process = table, process()
            weakref.finalize(self, _drop, table, self._process).atexit = False
        return self._table

    def _make(self, options: bytes, table: Any) -> None:
        raise NotImplementedError

    def _made_by(self, function: Callable[..., int], table: Any, *arguments: Any) -> None:
        error = c_void_p()
        check_with(function(*arguments, byref(table), byref(error)), error)

    def _fill(self, table: _raw.penstock_interceptor) -> None:
        check(_raw.penstock_ready_share(byref(self._filled()), byref(table)))


def _ms(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else milliseconds(seconds)


def _text_value(ended: Any, key: str) -> Optional[str]:
    """The text that the library has set as the value ``key`` of a call, an error or a hop."""
    address = ended.get_value(key) if hasattr(ended, "get_value") else ended.values.get(key)
    return ctypes.string_at(address).decode() if isinstance(address, int) else None


# ---- Bearer token ----


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


class BearerToken(_Ready):
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
            refresh_early_ms=_ms(refresh_early),
            refresh_timeout_ms=_ms(refresh_timeout),
            replay_bytes=replay_bytes,
            allow_cleartext=allow_cleartext,
        )

    def _make(self, options: bytes, table: Any) -> None:
        number = registry.add(_Asked(self._source, self._in_thread, self._context, self._kept))
        self._made_by(_raw.penstock_ready_bearer_token, table, options, _ask_trampoline, number, forget)


# ---- Logging ----


class _Writer(Scoped):
    """The object in the registry through which C passes lines."""

    def __init__(self, write: Callable[[str], object], context: Context, kept: Objects) -> None:
        super().__init__(context, kept)
        self.write = write


def _write(line: Optional[int], length: int, number: Optional[int]) -> None:
    writer = registry.get(number)
    if line is None or not isinstance(writer, _Writer):
        return
    try:
        run(writer.context, writer.write, ctypes.string_at(line, length).decode())
    except BaseException as error:
        run(writer.context, report, "Logging", "write", error)


class Logging(_Ready):
    """Passes each event as a line of JSON to ``write``, which is a function or a `logging.Logger` (then at INFO).

    ``events``: any of "start", "send", "half_close", "headers", "receive", "status", "cancel"; if not given,
    "start", "headers", "status" and "cancel". ``redact``: header names whose values are shown as "redacted";
    "authorization", "cookie", "proxy-authorization", "set-cookie" and "x-api-key" if not given. ``redact_binary``:
    whether the values of "-bin" names are redacted, too. ``metadata``: whether metadata is shown; ``messages``:
    "sizes" or "none". ``channel``: the least level of the channel's events that are logged, too: "debug", "info",
    "warning", "error" or "none"; "warning" if not given. ``write`` runs like a callback, and must not wait.
    """

    def __init__(
        self,
        write: Union[Callable[[str], object], logging.Logger],
        *,
        events: Optional[Iterable[str]] = None,
        redact: Optional[Iterable[str]] = None,
        redact_binary: Optional[bool] = None,
        metadata: Optional[bool] = None,
        messages: Optional[str] = None,
        channel: Optional[str] = None,
    ) -> None:
        self._write = _to_logger(write) if isinstance(write, logging.Logger) else write
        self._context = copy_context()
        super().__init__(
            events=None if events is None else list(events),
            redact=None if redact is None else list(redact),
            redact_binary=redact_binary,
            metadata=metadata,
            messages=messages,
            channel=channel,
        )

    def _make(self, options: bytes, table: Any) -> None:
        number = registry.add(_Writer(self._write, self._context, self._kept))
        self._made_by(_raw.penstock_ready_logging, table, options, _write_trampoline, number, forget)


def _to_logger(logger: logging.Logger) -> Callable[[str], object]:
    return lambda line: logger.info("%s", line)


for _function in (_ask, _write):
    recover(_function, lambda given: None)
_ask_trampoline = _raw.penstock_token_source(_ask)
_write_trampoline = _raw.penstock_log_line(_write)


# ---- Metrics ----


class Metrics(_Ready):
    """Counts calls, messages and status codes, and keeps histograms of the durations of calls, by method, target and
    code; and counts calls and connections by server.

    ``buckets``: the upper bounds of the histograms in seconds, rising; each is rounded to a millisecond.
    ``max_methods``: how many methods, of each target, are counted apart; calls of all others are counted together as
    "other". ``max_peers``: how many servers are counted apart.
    """

    def __init__(
        self,
        *,
        buckets: Optional[Iterable[float]] = None,
        max_methods: Optional[int] = None,
        max_peers: Optional[int] = None,
    ) -> None:
        self._handle = 0
        super().__init__(
            buckets_ms=None if buckets is None else [round(bound * 1000) for bound in buckets],
            max_methods=max_methods,
            max_peers=max_peers,
        )

    def _make(self, options: bytes, table: Any) -> None:
        metrics, error = c_void_p(), c_void_p()
        check_with(_raw.penstock_metrics_new(options, byref(metrics), byref(error)), error)
        assert metrics.value is not None
        self._handle = own(self, _raw.penstock_metrics_release, metrics.value)
        check(_raw.penstock_ready_metrics(self._handle, byref(table)))

    def snapshot(self) -> Dict[str, Any]:
        """The counts, in the form of penstock_metrics_snapshot_json (ready.h). Any thread, also while calls run."""
        self._filled()
        counted: Dict[str, Any] = json.loads(owned_text(_raw.penstock_metrics_snapshot_json, self._handle))
        return counted

    def prometheus(self) -> str:
        """The counts in Prometheus' text format 0.0.4."""
        self._filled()
        return owned_text(_raw.penstock_metrics_prometheus_text, self._handle)


# ---- Trace context ----


class TraceContext(_Ready):
    """W3C trace context: passes on a valid ``traceparent`` in the request's metadata, with its ``tracestate``;
    without a valid one it begins a trace.

    ``sampled``: the percentage of the traces beginning here that are marked as sampled. ``parent_id``: with "new" a
    ``traceparent`` that is passed on gets a new parent-id, with "keep" it keeps its own. ``seed``: a number with
    which the same ids are made each time; without it they are random.
    """

    def __init__(
        self, *, sampled: Optional[float] = None, parent_id: Optional[str] = None, seed: Optional[int] = None
    ) -> None:
        super().__init__(sampled=sampled, parent_id=parent_id, seed=seed)

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_trace_context, table, options)

    @staticmethod
    def of(call: object) -> Optional[str]:
        """The traceparent that was sent by a call, which is given as a call, an `RpcError` or a hop; None if there
        was none."""
        return _text_value(call, "penstock.traceparent")


# ---- Response cache ----


class ResponseCache(_Ready):
    """Answers a unary call that has the same method, request and chosen metadata as an earlier call, with the
    response of that call, if that was OK. Use ``methods=`` to name the methods that may be cached.

    ``ttl``: how long a response may be used. ``max_entries``, ``max_bytes``: how many responses, and how many bytes
    of them, are kept; the least recently used are dropped first. ``metadata``: names of request metadata, whose
    values must be those of the earlier call; "authorization" if not given.
    """

    def __init__(
        self,
        *,
        ttl: Optional[float] = None,
        max_entries: Optional[int] = None,
        max_bytes: Optional[int] = None,
        metadata: Optional[Iterable[str]] = None,
    ) -> None:
        super().__init__(
            ttl_ms=_ms(ttl),
            max_entries=max_entries,
            max_bytes=max_bytes,
            metadata=None if metadata is None else list(metadata),
        )

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_response_cache, table, options)

    @staticmethod
    def answered(call: object) -> bool:
        """Whether a call, which is given as a call, an `RpcError` or a hop, was answered from a cache."""
        return _text_value(call, "penstock.cache") == "hit"


# ---- Rate limit ----


class RateLimit(_Ready):
    """Lets ``rate`` calls start per second on average; a call that comes too early waits its turn.

    ``burst``: how many calls may start at once after a time without calls. A call that would have to wait for more
    than ``max_wait``, or behind ``max_waiting`` others, ends at once with ``code`` (default: RESOURCE_EXHAUSTED).
    """

    def __init__(
        self,
        rate: float,
        *,
        burst: Optional[int] = None,
        max_wait: Optional[float] = None,
        max_waiting: Optional[int] = None,
        code: Optional[CodeLike] = None,
    ) -> None:
        super().__init__(
            rate=rate,
            burst=burst,
            max_wait_ms=_ms(max_wait),
            max_waiting=max_waiting,
            code=None if code is None else code_number(code),
        )

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_rate_limit, table, options)


# ---- Fault injection ----


class FaultInjection(_Ready):
    """Delays calls by ``delay`` before anything is sent, ends them with the status ``abort``, or both.

    ``delay_percent``, ``abort_percent``: the percentage of the calls that are delayed, and that are ended.
    ``message``: the status message. ``seed``: a number with which the same faults come each time; without it they are
    random.
    """

    def __init__(
        self,
        *,
        delay: Optional[float] = None,
        delay_percent: float = 100,
        abort: Optional[CodeLike] = None,
        message: str = "injected fault",
        abort_percent: float = 100,
        seed: Optional[int] = None,
    ) -> None:
        super().__init__(
            delay=None if delay is None else {"ms": milliseconds(delay), "percent": delay_percent},
            abort=None
            if abort is None
            else {"code": code_number(abort), "message": message, "percent": abort_percent},
            seed=seed,
        )

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_fault_injection, table, options)


# ---- Header rules ----

# A rule is ("set", name, value), ("add", name, value), ("remove", name) or ("rename", name, other name).
Rule = Tuple[Union[str, bytes], ...]


class HeaderRules(_Ready):
    """Changes metadata of the request, of the response's headers and of its trailers, by rules that are applied in
    order: ``("set", name, value)``, ``("add", name, value)``, ``("remove", name)``, ``("rename", name, other)``. The
    value of a "-bin" name is bytes."""

    def __init__(
        self, *, request: Iterable[Rule] = (), headers: Iterable[Rule] = (), trailers: Iterable[Rule] = ()
    ) -> None:
        super().__init__(request=_rules(request), headers=_rules(headers), trailers=_rules(trailers))

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_header_rules, table, options)


_KEYS = {"set": ("set", "value"), "add": ("add", "value"), "remove": ("remove",), "rename": ("rename", "to")}


def _rules(rules: Iterable[Rule]) -> List[Dict[str, str]]:
    made = []
    # Errors name a rule by its number only, because its value may be a secret.
    for number, rule in enumerate(rules):
        verb, *rest = rule
        keys = _KEYS.get(verb) if isinstance(verb, str) else None
        if keys is None or len(rest) != len(keys):
            raise ValueError(f"rule {number} is no header rule")
        name = rest[0]
        if not isinstance(name, str):
            raise TypeError(f"rule {number}: a header's name must be a str")
        texts = [name]
        for part in rest[1:]:
            if isinstance(part, str) == ("value" in keys and name.lower().endswith("-bin")):
                raise TypeError(f'rule {number}: the value of a "-bin" name is bytes, of any other a str')
            texts.append(part if isinstance(part, str) else base64.b64encode(part).decode())
        made.append(dict(zip(keys, texts)))
    return made
