"""OpenTelemetry's metrics and spans, ready-made, and their export."""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from ctypes import byref, c_int32, c_void_p
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

from .. import _raw
from .._handles import host
from .._handles.arguments import milliseconds
from .._handles.errors import BusyError, check_with
from .._handles.metadata import owned_text
from .._handles.objects import own
from .._handles.reports import report
from .._handles.status import StatusCode
from .._handles.verdict import Level
from ._base import Ready

if TYPE_CHECKING:
    from .._channels.channel import Channel


class Telemetry(Ready):
    """Records the metrics that gRPC has for clients (gRFC A66) and a span for each call and each attempt (gRFC A72),
    by the names of OpenTelemetry. They are read here, or exported to a collector by OTLP over gRPC.

    ``resource``: attributes that tell where the data come from, such as ``{"service.name": "shop"}``. ``metrics``,
    ``spans``: what is recorded. ``messages``: whether the messages of an attempt are events of its span. ``sampled``:
    the percentage of the traces beginning here whose spans are recorded. ``max_methods``: how many pairs of a
    method and a target are counted apart; the others are counted together as "other". ``max_spans``,
    ``max_span_bytes``: how many spans, and how many bytes of them, are kept until they are read or exported; further
    ones are dropped, and counted.
    """

    level = Level.BOTH
    per_attempt = True

    def __init__(
        self,
        *,
        resource: Optional[Mapping[str, str]] = None,
        metrics: Optional[bool] = None,
        spans: Optional[bool] = None,
        messages: Optional[bool] = None,
        sampled: Optional[float] = None,
        max_methods: Optional[int] = None,
        max_spans: Optional[int] = None,
        max_span_bytes: Optional[int] = None,
    ) -> None:
        self._handle = 0
        super().__init__(
            resource=None if resource is None else dict(resource),
            metrics=metrics,
            spans=spans,
            messages=messages,
            sampled=sampled,
            max_methods=max_methods,
            max_spans=max_spans,
            max_span_bytes=max_span_bytes,
        )

    def _make(self, options: bytes, table: Any) -> None:
        telemetry, error = c_void_p(), c_void_p()
        check_with(_raw.penstock_telemetry_new(options, byref(telemetry), byref(error)), error)
        assert telemetry.value is not None
        self._handle = own(self, _raw.penstock_telemetry_release, telemetry.value)
        check_with(_raw.penstock_ready_telemetry(self._handle, byref(table), byref(error)), error)

    def _view(self, function: Any) -> Dict[str, Any]:
        self._filled()
        view: Dict[str, Any] = json.loads(owned_text(function, self._handle))
        return view

    def prometheus(self) -> str:
        """The metrics in Prometheus' text format 0.0.4. Any thread, also while calls run."""
        self._filled()
        return owned_text(_raw.penstock_telemetry_prometheus_text, self._handle)

    def metrics(self) -> Dict[str, Any]:
        """The metrics as OTLP/JSON: an ExportMetricsServiceRequest. Any thread, also while calls run."""
        return self._view(_raw.penstock_telemetry_metrics_json)

    def take_spans(self) -> Dict[str, Any]:
        """Takes the spans that have ended, as OTLP/JSON: an ExportTraceServiceRequest. Each span is given once.

        BusyError: another thread takes or exports spans."""
        return self._view(_raw.penstock_telemetry_spans_json)

    def stats(self) -> Dict[str, Any]:
        """Figures about the object itself, in the form of penstock_telemetry_stats_json (telemetry.h)."""
        return self._view(_raw.penstock_telemetry_stats_json)

    def flush(self, channel: Channel, timeout: float = 10) -> StatusCode:
        """Exports the metrics, and then the spans, to a collector, and waits for its answers, up to ``timeout``
        seconds in all. Returns the code of the first request that failed, or OK; `stats` has its message. The spans
        of an export that may be tried again are kept. If Ctrl-C ends the wait, the export itself goes on.

        BusyError: another thread takes or exports spans. ClosedError: the channel is closed. WouldDeadlockError: in a
        callback."""
        self._filled()
        most = milliseconds(timeout)

        def flush() -> int:
            code, error = c_int32(), c_void_p()
            result = _raw.penstock_telemetry_flush(self._handle, channel._handle, most, byref(code), byref(error))
            check_with(result, error)
            return code.value

        return StatusCode(host.apart(flush, "penstock-flush"))

    def export(self, channel: Channel, interval: float = 60, timeout: float = 10) -> TelemetryExport:
        """Exports to a collector every ``interval`` seconds, on a thread of its own, and a last time when the export
        is closed, or the program ends. ``timeout``: as in `flush`."""
        return TelemetryExport(self, channel, interval, timeout)


class TelemetryExport:
    """An export that goes on until `close`; `Telemetry.export` makes it. A context manager, which closes it. A child
    of `os.fork` begins one of its own; `close` does nothing there."""

    def __init__(self, telemetry: Telemetry, channel: Channel, interval: float, timeout: float) -> None:
        if not 0 < interval <= threading.TIMEOUT_MAX:
            raise ValueError(f"interval must be above 0, and at most {threading.TIMEOUT_MAX} seconds")
        milliseconds(timeout)
        self._telemetry = telemetry
        self._channel = channel
        self._interval = interval
        self._timeout = timeout
        self._process = os.getpid()
        self._ended = threading.Event()
        self._is_over = False
        self._over = host.Gates()
        self._thread = threading.Thread(target=self._run, name="penstock-export", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._interval):
                self._flush(self._timeout)
            # Another thread may take spans just now: those that came after them are sent once it is ready.
            until = time.monotonic() + self._timeout
            while not self._flush(max(until - time.monotonic(), 0)) and time.monotonic() < until:
                time.sleep(0.01)
        finally:
            self._is_over = True
            self._over.open()

    def _flush(self, timeout: float) -> bool:
        """False: another thread exports the same spans."""
        try:
            self._telemetry.flush(self._channel, timeout)
        except BusyError:
            return False
        except Exception as error:
            report("Telemetry", "export", error)
        return True

    def close(self) -> None:
        """Exports a last time, and ends the thread; waits for both. A second time it does nothing."""
        if os.getpid() != self._process:
            return  # the thread is the parent's
        atexit.unregister(self.close)
        self._ended.set()
        self._over.wait(lambda: self._is_over or None)

    def __enter__(self) -> TelemetryExport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
