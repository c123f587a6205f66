"""penstock.ready.Telemetry: what it records reaches a collector by OTLP over gRPC, and is what it gives as OTLP/JSON. The
messages are read by the classes of opentelemetry-proto."""

import base64
import json
import re
import uuid

from using import TARGET, case, channel, expect, main  # isort: skip
import penstock
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from penstock import StatusCode
from penstock.ready import Telemetry

LATENCIES = [0, .00001, .00005, .0001, .0003, .0006, .0008, .001, .002, .003, .004, .005, .006, .008, .01, .013, .016, .02,
             .025, .03, .04, .05, .065, .08, .1, .13, .16, .2, .25, .3, .4, .5, .65, .8, 1, 2, 5, 10, 20, 50, 100]
SIZES = [0, 1024, 2048, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456, 1073741824, 4294967296]
ATTEMPT, CALL = "grpc.client.attempt.", "grpc.client.call."
UNITS = {ATTEMPT + "started": "{attempt}", ATTEMPT + "duration": "s", CALL + "duration": "s",
         ATTEMPT + "sent_total_compressed_message_size": "By", ATTEMPT + "rcvd_total_compressed_message_size": "By"}
HELLO = "helloworld.Greeter/SayHello"
BIDI = "helloworld.Greeter/SayHelloBidiStream"
ADA = b"\x0a\x03Ada"


def recording(kind="plain", **more):
    test = f"{kind}-{uuid.uuid4()}"
    return test, Telemetry(resource={"service.name": "tests", "test": test}, **more)


def greeter(telemetry, **options):
    return penstock.Channel(TARGET, tls=False, interceptors=[telemetry], **options)


def taken(test):
    """The requests that have come to the collector, as messages: of metrics, and of spans."""
    with channel() as opened:
        texts = json.loads(opened.unary_unary("/packages.Collector/TakenWhole")(test.encode(), timeout=60))
    found = {kind: [] for kind in (ExportMetricsServiceRequest, ExportTraceServiceRequest)}
    for name, text in texts:
        kind = next(one for one in found if one.__name__ == name)
        found[kind].append(kind.FromString(base64.b64decode(text)))
    return found[ExportMetricsServiceRequest], found[ExportTraceServiceRequest]


def spans_of(*requests):
    return [span for request in requests for resource in request.resource_spans for scope in resource.scope_spans
            for span in scope.spans]


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def check_origin(resources, scopes, test):
    expect(attributes(resources[0].resource.attributes), {"service.name": "tests", "test": test}, "resource")
    scope = getattr(resources[0], scopes)[0].scope
    expect((scope.name, scope.version), ("penstock", penstock.library_version()), "scope")


def points(request):
    """The data points by the metric's name, method and status."""
    found = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        expect(metric.unit, UNITS[metric.name], f"unit of {metric.name}")
        kind = metric.WhichOneof("data")
        expect(kind, "sum" if metric.name == ATTEMPT + "started" else "histogram", metric.name)
        data = getattr(metric, kind)
        expect(data.aggregation_temporality, AGGREGATION_TEMPORALITY_CUMULATIVE)
        for point in data.data_points:
            labels = attributes(point.attributes)
            expect(labels["grpc.target"], f"dns:///{TARGET}")
            expect(0 < point.start_time_unix_nano <= point.time_unix_nano, True, "start before end")
            found[metric.name, labels["grpc.method"], labels.get("grpc.status")] = point
            if kind == "histogram":
                expect(list(point.explicit_bounds), LATENCIES if metric.unit == "s" else SIZES, "bounds")
                expect(len(point.bucket_counts), len(point.explicit_bounds) + 1, "buckets")
                expect(sum(point.bucket_counts), point.count, "count")
    expect({name for name, _, _ in found}, set(UNITS))
    return found


def from_json(view, kind):
    """OTLP/JSON has ids as hexadecimal digits, and otherwise is protobuf's JSON, which has base64."""
    text = re.sub(r'"(traceId|spanId|parentSpanId)": "([0-9a-f]+)"',
                  lambda found: f'"{found[1]}": "{base64.b64encode(bytes.fromhex(found[2])).decode()}"', json.dumps(view))
    return json_format.Parse(text, kind())


@case
def metrics():
    test, telemetry = recording(spans=False)
    with greeter(telemetry) as opened:
        hello = opened.unary_unary("/" + HELLO)
        for _ in range(3):
            hello(ADA)
        try:
            hello(b"\x0a\x06nobody")
        except penstock.RpcError as error:
            expect(error.code(), StatusCode.FAILED_PRECONDITION)
        view = telemetry.metrics()
        expect(telemetry.flush(opened, 60), StatusCode.OK)
    (request,), spans = taken(test)
    expect(spans, [])
    check_origin(request.resource_metrics, "scope_metrics", test)
    found = points(request)
    started = found[ATTEMPT + "started", HELLO, None]
    expect(started.as_int, 4)
    for name in (ATTEMPT + "duration", CALL + "duration"):
        expect(found[name, HELLO, "OK"].count, 3, name)
        expect(0 < found[name, HELLO, "OK"].sum < 180, True, name)
        expect(found[name, HELLO, "FAILED_PRECONDITION"].count, 1, name)
    sent = found[ATTEMPT + "sent_total_compressed_message_size", HELLO, "OK"]
    expect((sent.sum, list(sent.bucket_counts)), (15, [0, 3] + 13 * [0]), "sent")
    expect(found[ATTEMPT + "rcvd_total_compressed_message_size", HELLO, "OK"].sum, 3 * (2 + len("Hello, Ada!")))
    none = found[ATTEMPT + "rcvd_total_compressed_message_size", HELLO, "FAILED_PRECONDITION"]
    expect(list(none.bucket_counts), [1] + 14 * [0], "nothing received")
    parsed = from_json(view, ExportMetricsServiceRequest)
    # The two were made at different times.
    for each in (request, parsed):
        for metric in each.resource_metrics[0].scope_metrics[0].metrics:
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                point.time_unix_nano = 0
    expect(parsed, request, "OTLP/JSON")


@case
def spans():
    test, telemetry = recording(metrics=False)
    with greeter(telemetry) as opened:
        _, call = opened.unary_unary("/" + HELLO).with_call(ADA)
        expect(telemetry.flush(opened, 60), StatusCode.OK)
    none, (request,) = taken(test)
    expect(none, [])
    check_origin(request.resource_spans, "scope_spans", test)
    attempt, sent = spans_of(request)
    expect((sent.name, attempt.name), ("Sent." + HELLO, "Attempt." + HELLO))
    expect((len(sent.trace_id), len(sent.span_id), sent.parent_span_id), (16, 8, b""))
    expect((attempt.trace_id, attempt.parent_span_id), (sent.trace_id, sent.span_id))
    expect(attempt.span_id != sent.span_id, True)
    trailers = dict(call.trailing_metadata())
    expect(trailers["x-traceparent"], f"00-{attempt.trace_id.hex()}-{attempt.span_id.hex()}-01")
    for span in (sent, attempt):
        expect((span.kind, span.status.code, span.flags), (Span.SPAN_KIND_CLIENT, Status.STATUS_CODE_OK, 1))
        expect(0 < span.start_time_unix_nano < span.end_time_unix_nano, True, "start before end")
    expect(sent.start_time_unix_nano <= attempt.start_time_unix_nano, True)
    expect(attempt.end_time_unix_nano <= sent.end_time_unix_nano, True)
    host, port = TARGET.rsplit(":", 1)
    common = {"rpc.system": "grpc", "rpc.service": "helloworld.Greeter", "rpc.method": "SayHello",
              "server.address": host, "server.port": int(port), "rpc.grpc.status_code": 0}
    expect(attributes(sent.attributes), common)
    found = attributes(attempt.attributes)
    expect((found.pop("network.peer.port"), bool(found.pop("network.peer.address"))), (int(port), True))
    expect(found, {**common, "previous-rpc-attempts": 0, "transparent-retry": False})
    expect(events(attempt), [("Outbound message", 0, 5), ("Inbound message", 0, 2 + len("Hello, Ada!"))])
    expect(list(sent.events), [])


def events(span):
    for event in span.events:
        expect(span.start_time_unix_nano <= event.time_unix_nano <= span.end_time_unix_nano, True, "an event's time")
    found = [(event.name, attributes(event.attributes)) for event in span.events]
    return [(name, one["sequence-number"], one["message-size"]) for name, one in found]


@case
def spans_are_the_same_in_json():
    test, telemetry = recording()
    with greeter(telemetry) as opened:
        for request in (ADA, b"\x0a\x06nobody"):
            try:
                opened.unary_unary("/" + HELLO)(request)
            except penstock.RpcError as error:
                expect(error.details(), "not so")
        taken("nothing")
        parsed = spans_of(from_json(telemetry.take_spans(), ExportTraceServiceRequest))
        expect([span.name for span in parsed], 2 * ["Attempt." + HELLO, "Sent." + HELLO])
        expect([(span.status.code, span.status.message) for span in parsed],
               2 * [(Status.STATUS_CODE_OK, "")] + 2 * [(Status.STATUS_CODE_ERROR, "FAILED_PRECONDITION: not so")])
        expect(parsed[0].parent_span_id, parsed[1].span_id)
        # Each span is given once.
        expect(spans_of(from_json(telemetry.take_spans(), ExportTraceServiceRequest)), [])
    expect(telemetry.stats()["spans"]["taken"], 4)


@case
def messages_of_a_stream():
    test, telemetry = recording(metrics=False)
    with greeter(telemetry) as opened:
        answers = list(opened.stream_stream("/" + BIDI)(iter([ADA, b"\x0a\x01B"])))
        expect(len(answers), 2)
        expect(telemetry.flush(opened, 60), StatusCode.OK)
    _, (request,) = taken(test)
    found = events(spans_of(request)[0])
    expect([one for one in found if one[0].startswith("Out")], [("Outbound message", 0, 5), ("Outbound message", 1, 3)])
    expect([one for one in found if one[0].startswith("In")], [("Inbound message", 0, 13), ("Inbound message", 1, 11)])


@case
def an_attempt_is_a_span():
    test, telemetry = recording()
    retry = {"maxAttempts": 2, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
             "retryableStatusCodes": ["FAILED_PRECONDITION"]}
    config = {"methodConfig": [{"name": [{}], "retryPolicy": retry}]}
    with greeter(telemetry, options={"service_config": config}) as opened:
        try:
            opened.unary_unary("/" + HELLO)(b"\x0a\x06nobody")
        except penstock.RpcError as error:
            expect(error.code(), StatusCode.FAILED_PRECONDITION)
        expect(telemetry.flush(opened, 60), StatusCode.OK)
    (metrics,), (request,) = taken(test)
    first, second, sent = spans_of(request)
    expect([span.name.split(".")[0] for span in (first, second, sent)], ["Attempt", "Attempt", "Sent"])
    expect((first.parent_span_id, second.parent_span_id), (sent.span_id, sent.span_id))
    expect([attributes(span.attributes)["previous-rpc-attempts"] for span in (first, second)], [0, 1])
    for span in (first, second, sent):
        expect((span.status.code, span.status.message), (Status.STATUS_CODE_ERROR, "FAILED_PRECONDITION: not so"))
    found = points(metrics)
    expect(found[ATTEMPT + "started", HELLO, None].as_int, 2)
    expect(found[ATTEMPT + "duration", HELLO, "FAILED_PRECONDITION"].count, 2)
    expect(found[CALL + "duration", HELLO, "FAILED_PRECONDITION"].count, 1)


@case
def many_spans_go_in_several_requests():
    test, telemetry = recording(metrics=False)
    with greeter(telemetry) as opened:
        hello = opened.unary_unary("/" + HELLO)
        for _ in range(300):
            hello(ADA)
        expect(telemetry.flush(opened, 60), StatusCode.OK)
    _, requests = taken(test)
    expect([len(spans_of(request)) for request in requests], [512, 88])
    expect(len({span.span_id for span in spans_of(*requests)}), 600)


@case
def an_export_that_failed_is_made_again():
    test, telemetry = recording("retry", metrics=False)
    with greeter(telemetry) as opened:
        opened.unary_unary("/" + HELLO)(ADA)
        expect(telemetry.flush(opened, 60), StatusCode.UNAVAILABLE)
        figures = telemetry.stats()
        expect((figures["spans"]["kept"], figures["exports"]["message"]), (2, "not yet"))
        expect(telemetry.flush(opened, 60), StatusCode.OK)
    _, (request,) = taken(test)
    expect(len(spans_of(request)), 2)
    expect(telemetry.stats()["spans"]["kept"], 0)


@case
def spans_that_a_collector_refuses_are_counted():
    test, telemetry = recording("partly", metrics=False)
    with greeter(telemetry) as opened:
        opened.unary_unary("/" + HELLO)(ADA)
        expect(telemetry.flush(opened, 60), StatusCode.OK)
    taken(test)
    figures = telemetry.stats()["spans"]
    expect((figures["taken"], figures["refused"], figures["kept"]), (1, 1, 0))


@case
def an_export_goes_on_until_it_is_closed():
    test, telemetry = recording()
    with greeter(telemetry) as opened, greeter(telemetry) as collector:
        with telemetry.export(collector, interval=0.01):
            opened.unary_unary("/" + HELLO)(ADA)
            while telemetry.stats()["spans"]["taken"] < 2:
                pass
            opened.unary_unary("/" + HELLO)(ADA)
        expect(telemetry.stats()["spans"]["kept"], 0)
    metrics, requests = taken(test)
    expect(len(spans_of(*requests)), 4)
    # The exports themselves are not recorded.
    expect({method for _, method, _ in points(metrics[-1])}, {HELLO})
    expect(points(metrics[-1])[ATTEMPT + "started", HELLO, None].as_int, 2)


if __name__ == "__main__":
    main()
