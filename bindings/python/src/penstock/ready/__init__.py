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
import ctypes
import json
import logging
from contextvars import Context, copy_context
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from .. import _raw
from .._handles.arguments import milliseconds
from .._handles.context import Scoped, run
from .._handles.ctrl_c import recover
from .._handles.errors import check, check_with
from .._handles.metadata import owned_text
from .._handles.objects import Objects, forget, own, registry
from .._handles.reports import report
from .._handles.status import CodeLike, code_number
from ._base import Ready, ms, text_value
from ._bearer_token import BearerToken, TokenFile, TokenRequest
from ._credentials import OAuth2, SignedToken
from ._hedging import Hedging
from ._telemetry import Telemetry, TelemetryExport

__all__ = [
    "BearerToken",
    "FaultInjection",
    "HeaderRules",
    "Hedging",
    "Logging",
    "Metrics",
    "OAuth2",
    "RateLimit",
    "ResponseCache",
    "SignedToken",
    "Telemetry",
    "TelemetryExport",
    "TokenFile",
    "TokenRequest",
    "TraceContext",
]


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


class Logging(Ready):
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


recover(_write, lambda given: None)
_write_trampoline = _raw.penstock_log_line(_write)


# ---- Metrics ----


class Metrics(Ready):
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


class TraceContext(Ready):
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
        return text_value(call, "penstock.traceparent")


# ---- Response cache ----


class ResponseCache(Ready):
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
            ttl_ms=ms(ttl),
            max_entries=max_entries,
            max_bytes=max_bytes,
            metadata=None if metadata is None else list(metadata),
        )

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_response_cache, table, options)

    @staticmethod
    def answered(call: object) -> bool:
        """Whether a call, which is given as a call, an `RpcError` or a hop, was answered from a cache."""
        return text_value(call, "penstock.cache") == "hit"


# ---- Rate limit ----


class RateLimit(Ready):
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
            max_wait_ms=ms(max_wait),
            max_waiting=max_waiting,
            code=None if code is None else code_number(code),
        )

    def _make(self, options: bytes, table: Any) -> None:
        self._made_by(_raw.penstock_ready_rate_limit, table, options)


# ---- Fault injection ----


class FaultInjection(Ready):
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


class HeaderRules(Ready):
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
