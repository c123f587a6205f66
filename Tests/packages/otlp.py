"""opentelemetry-exporter-otlp-proto-grpc: spans, metrics and log records reach a collector. The exporter makes its own
channel from the module grpc, so this program runs where that module is ours, without grpcio, or where it is grpcio's."""

import json
import os
import uuid

from using import TARGET, case, channel, expect, main  # isort: skip
import grpc
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult


def name(kind="plain"):
    return f"{kind}-{uuid.uuid4()}"


def taken(test):
    with channel() as opened:
        return json.loads(opened.unary_unary("/packages.Collector/Taken")(test.encode(), timeout=60))


def exporter(test, **more):
    return OTLPSpanExporter(endpoint=f"http://{TARGET}", headers=(("x-test", test),), **more)


def names(exports):
    return [name for export in exports for name in export[0]]


@case
def spans():
    test = name()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter(test)))
    tracer = provider.get_tracer("tests")
    with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner"):
        pass
    provider.shutdown()
    exports = taken(test)
    expect(names(exports), ["inner", "outer"])
    expect("OTel-OTLP-Exporter-Python" in exports[0][2], True, f"its own name in the user agent {exports[0][2]}")


@case
def many_spans_in_the_background():
    test = name()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter(test, compression=grpc.Compression.Gzip)))
    tracer = provider.get_tracer("tests")
    for number in range(2000):
        tracer.start_span(f"span {number}").end()
    expect(provider.force_flush(60_000), True, "flushed")
    provider.shutdown()
    expect(sorted(names(taken(test))), sorted(f"span {number}" for number in range(2000)))


@case
def an_export_is_tried_again():
    test = name("retry")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter(test)))
    provider.get_tracer("tests").start_span("again").end()
    provider.shutdown()
    expect(names(taken(test)), ["again"])


@case
def metrics():
    test = name()
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=f"http://{TARGET}", headers={"x-test": test}), export_interval_millis=3_600_000)
    provider = MeterProvider(metric_readers=[reader])
    provider.get_meter("tests").create_counter("requests").add(3)
    provider.shutdown()
    expect(names(taken(test)), ["requests"])


@case
def log_records():
    test = name()
    provider = LoggerProvider()
    log_exporter = OTLPLogExporter(endpoint=TARGET, insecure=True, headers=f"x-test={test}")
    provider.add_log_record_processor(SimpleLogRecordProcessor(log_exporter))
    provider.get_logger("tests").emit(severity_number=SeverityNumber.INFO, body="hello")
    provider.shutdown()
    expect(names(taken(test)), ["hello"])


@case
def a_collector_that_is_not_there():
    taken("nothing")
    failing = OTLPSpanExporter(endpoint="http://127.0.0.1:1", timeout=1)
    provider = TracerProvider()
    span = provider.get_tracer("tests").start_span("lost")
    span.end()
    expect(failing.export([span]), SpanExportResult.FAILURE)
    failing.shutdown()


@case
def spans_over_tls():
    test = name()
    with open(os.environ["PENSTOCK_CA"], "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    secure = OTLPSpanExporter(
        endpoint=f"https://{os.environ['PENSTOCK_TLS']}", credentials=credentials, headers={"x-test": test})
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(secure))
    provider.get_tracer("tests").start_span("secret").end()
    provider.shutdown()
    expect(names(taken(test)), ["secret"])


@case
def tls_is_the_default():
    """Against a server in cleartext the handshake fails, and with it the export."""
    taken("nothing")
    secure = OTLPSpanExporter(endpoint=f"https://{TARGET}", timeout=1)
    span = TracerProvider().get_tracer("tests").start_span("lost")
    span.end()
    expect(secure.export([span]), SpanExportResult.FAILURE)
    secure.shutdown()


if __name__ == "__main__":
    main()
