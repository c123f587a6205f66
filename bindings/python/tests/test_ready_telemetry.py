"""penstock.ready.Telemetry against grpcio's server, and its exports to a server that takes bytes.
Tests/packages/telemetry.py reads what is exported by the classes of opentelemetry-proto."""

from __future__ import annotations

import os
import re
import signal
import threading
from concurrent import futures
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import grpc
import pytest

import penstock
from helpers import Peer, bidi, ended, eventually, program, seen, unary
from penstock import Channel, RpcError, StatusCode, ready

METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
SPANS = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Collector(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Keeps the requests, by their methods, and answers each with `code`."""

    def __init__(self) -> None:
        self.requests: List[Tuple[str, bytes]] = []
        self.code = grpc.StatusCode.OK
        self.answer = b""
        self.at_request: Callable[[], object] = lambda: None

    def service(self, details: Any) -> Any:
        def export(request: bytes, context: Any) -> bytes:
            self.requests.append((details.method, request))
            self.at_request()
            if self.code != grpc.StatusCode.OK:
                context.abort(self.code, "not now")
            return self.answer

        return grpc.unary_unary_rpc_method_handler(export)


@pytest.fixture
def collector() -> Iterator[Tuple[Collector, Channel]]:
    handler = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Channel(f"127.0.0.1:{port}", tls=False) as channel:
        yield handler, channel
    server.stop(None).wait()


def points(view: Dict[str, Any]) -> Dict[str, List[Dict[str, Any]]]:
    """The data points of OTLP/JSON by the names of their metrics."""
    metrics = view["resourceMetrics"][0]["scopeMetrics"][0].get("metrics", [])
    return {one["name"]: (one.get("sum") or one["histogram"])["dataPoints"] for one in metrics}


def spans(view: Dict[str, Any]) -> List[Dict[str, Any]]:
    found: List[Dict[str, Any]] = view["resourceSpans"][0]["scopeSpans"][0].get("spans", [])
    return found


def attributes(one: Dict[str, Any]) -> Dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values())) for pair in one["attributes"]}


def test_metrics_and_spans_of_a_call(channel: Channel, server: str, probe: Callable[..., Any]) -> None:
    telemetry = ready.Telemetry(resource={"service.name": "tests"})
    channel.add_interceptor(telemetry)
    unary(channel, b"four")
    with pytest.raises(RpcError):
        probe({"code": 5})
    found = points(telemetry.metrics())
    started = {attributes(point)["grpc.method"]: point["asInt"] for point in found["grpc.client.attempt.started"]}
    assert started == {"penstock.Echo/Unary": "1", "penstock.Probe/Unary": "1"}
    (echo, failed) = found["grpc.client.call.duration"]
    target = f"dns:///{server}"
    assert attributes(echo) == {"grpc.method": "penstock.Echo/Unary", "grpc.target": target, "grpc.status": "OK"}
    assert attributes(failed)["grpc.status"] == "NOT_FOUND"
    assert echo["count"] == "1"
    assert 0 < echo["sum"] < 60
    attempt, sent, *_ = spans(telemetry.take_spans())
    assert (attempt["name"], sent["name"]) == ("Attempt.penstock.Echo/Unary", "Sent.penstock.Echo/Unary")
    assert attempt["parentSpanId"] == sent["spanId"]
    assert spans(telemetry.take_spans()) == []
    assert telemetry.stats()["spans"] == {"kept": 0, "bytes": 0, "taken": 4, "dropped": 0, "refused": 0}


def test_the_server_gets_the_attempt_s_span(channel: Channel, probe: Callable[..., Any]) -> None:
    telemetry = ready.Telemetry()
    channel.add_interceptor(telemetry)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    (header,) = seen(probe(metadata={"traceparent": parent}), "traceparent")
    attempt, sent = spans(telemetry.take_spans())
    assert header == f"00-{attempt['traceId']}-{attempt['spanId']}-01"
    assert (sent["traceId"], sent["parentSpanId"]) == (parent[3:35], parent[36:52])


def test_attempts_of_a_hedged_call_are_its_children(channel: Channel) -> None:
    telemetry = ready.Telemetry()
    channel.add_interceptor(telemetry)
    channel.add_interceptor(ready.Hedging(delay=0, max_attempts=3))
    unary(channel)
    eventually(lambda: telemetry.stats()["spans"]["kept"] == 4)
    found = spans(telemetry.take_spans())
    (sent,) = (span for span in found if span["name"].startswith("Sent."))
    attempts = [span for span in found if span["name"].startswith("Attempt.")]
    assert {attempt["parentSpanId"] for attempt in attempts} == {sent["spanId"]}
    assert sorted(attributes(attempt)["previous-rpc-attempts"] for attempt in attempts) == ["0", "1", "2"]


@pytest.mark.parametrize(("code", "word"), [(0, None), (5, "not_found")])
def test_spans_of_connect(peer: Peer, code: int, word: Optional[str]) -> None:
    telemetry = ready.Telemetry()
    with Channel(peer.target, options={"tls": False, "protocol": "connect"}, interceptors=[telemetry]) as to:
        call = to.unary_unary("/penstock.Echo/Unary").future(b"x", metadata={"x-status": str(code)} if code else None)
        assert int(call.code()) == code
    for span in spans(telemetry.take_spans()):
        assert attributes(span)["rpc.system"] == "connect_rpc"
        assert attributes(span).get("rpc.connect_rpc.error_code") == word


def test_prometheus_text(channel: Channel, server: str) -> None:
    """Each line is a comment or a sample, each sample's family has a type, and the counts of buckets are
    cumulative."""
    telemetry = ready.Telemetry(max_methods=1)
    channel.add_interceptor(telemetry)
    unary(channel)
    bidi(channel, [b"1"])
    types: Dict[str, str] = {}
    buckets: Dict[str, List[float]] = {}
    values: Dict[Tuple[str, str], float] = {}
    sample = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\["\\n])*",?)+)\} ([0-9.]+)')
    for line in telemetry.prometheus().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
        elif not line.startswith("# HELP "):
            found = sample.fullmatch(line)
            assert found, line
            name, labels, value = found[1], found[2], float(found[3])
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert types[family] == ("counter" if family.endswith("_total") else "histogram")
            values[name, labels] = value
            if name.endswith("_bucket"):
                buckets.setdefault(name + labels.partition(",le=")[0], []).append(value)
    assert all(counts == sorted(counts) and counts[-1] == 1 for counts in buckets.values())
    assert {len(counts) for counts in buckets.values()} == {42, 15}
    echo = f'grpc_method="penstock.Echo/Unary",grpc_target="dns:///{server}"'
    assert values["grpc_client_attempt_started_total", echo] == 1
    assert values["grpc_client_attempt_started_total", 'grpc_method="other",grpc_target="other"'] == 1


def test_spans_beyond_the_bounds_are_counted(channel: Channel) -> None:
    telemetry = ready.Telemetry(max_spans=3, messages=False)
    channel.add_interceptor(telemetry)
    for _ in range(5):
        unary(channel)
    figures = telemetry.stats()["spans"]
    assert (figures["kept"], figures["dropped"]) == (3, 7)
    assert not any("events" in span for span in spans(telemetry.take_spans()))


def test_flush_sends_metrics_and_spans(channel: Channel, collector: Tuple[Collector, Channel]) -> None:
    handler, to = collector
    telemetry = ready.Telemetry()
    channel.add_interceptor(telemetry)
    to.add_interceptor(telemetry)
    unary(channel)
    assert telemetry.flush(to) is StatusCode.OK
    assert [method for method, _ in handler.requests] == [METRICS, SPANS]
    assert all(b"penstock" in request for _, request in handler.requests)
    # The exports are not recorded.
    assert len(points(telemetry.metrics())["grpc.client.attempt.started"]) == 1
    assert telemetry.flush(to) is StatusCode.OK
    assert [method for method, _ in handler.requests] == [METRICS, SPANS, METRICS]


@pytest.mark.parametrize(("code", "kept"), [(grpc.StatusCode.UNAVAILABLE, 2), (grpc.StatusCode.INVALID_ARGUMENT, 0)])
def test_flush_keeps_spans_that_may_be_sent_again(
    channel: Channel, collector: Tuple[Collector, Channel], code: grpc.StatusCode, kept: int
) -> None:
    handler, to = collector
    telemetry = ready.Telemetry(metrics=False)
    channel.add_interceptor(telemetry)
    unary(channel)
    handler.code = code
    assert telemetry.flush(to).name == code.name
    figures = telemetry.stats()
    assert (figures["spans"]["kept"], figures["spans"]["refused"]) == (kept, 2 - kept)
    assert figures["exports"] == {"sent": 1, "failed": 1, "code": code.value[0], "message": "not now"}


def test_an_export_ends_with_a_last_one(channel: Channel, collector: Tuple[Collector, Channel]) -> None:
    handler, to = collector
    telemetry = ready.Telemetry(metrics=False)
    channel.add_interceptor(telemetry)
    with telemetry.export(to, interval=0.01) as export:
        unary(channel)
        eventually(lambda: telemetry.stats()["spans"]["taken"] == 2)
        unary(channel)
    assert telemetry.stats()["spans"]["kept"] == 0
    count = len(handler.requests)
    export.close()
    assert len(handler.requests) == count
    for interval in (0, float("inf"), float("nan"), threading.TIMEOUT_MAX * 2):
        with pytest.raises(ValueError, match="interval"):
            telemetry.export(to, interval=interval)


def test_a_program_that_ends_exports_a_last_time(server: str, collector: Tuple[Collector, Channel]) -> None:
    handler, to = collector
    text = """
from penstock import ready
telemetry = ready.Telemetry()
channel = penstock.Channel(target, tls=False, interceptors=[telemetry])
export = telemetry.export(penstock.Channel(collector, tls=False), interval=3600)
channel.unary_unary("/penstock.Echo/Unary")(b"x")
"""
    assert ended(program(f"collector = {to.target!r}" + text, server)) == ("", "")
    assert [method for method, _ in handler.requests] == [METRICS, SPANS]


def test_exports_on_a_closed_channel_are_reported(channel: Channel) -> None:
    told: List[Any] = []
    telemetry = ready.Telemetry()
    penstock.set_exception_hook(lambda *what: told.append(what))
    try:
        with Channel("127.0.0.1:1", tls=False) as to:
            pass
        with pytest.raises(penstock.ClosedError):
            telemetry.flush(to)
        telemetry.export(to, interval=3600).close()
    finally:
        penstock.set_exception_hook(None)
    assert [what[:2] for what in told] == [("Telemetry", "export")]


def test_the_last_export_waits_for_another_one(channel: Channel, collector: Tuple[Collector, Channel]) -> None:
    """A span that comes while another thread exports goes with the last export."""
    handler, to = collector
    begun, go = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go.wait(60)

    handler.at_request = hold
    telemetry = ready.Telemetry(metrics=False)
    channel.add_interceptor(telemetry)
    unary(channel)
    other = threading.Thread(target=telemetry.flush, args=(to, 60))
    other.start()
    assert begun.wait(60)
    unary(channel)
    export = telemetry.export(to, interval=3600, timeout=60)
    closing = threading.Thread(target=export.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    handler.at_request = lambda: None
    go.set()
    closing.join(60)
    other.join(60)
    assert telemetry.stats()["spans"] == {"kept": 0, "bytes": 0, "taken": 4, "dropped": 0, "refused": 0}


def test_an_export_goes_on_after_any_exception(channel: Channel, collector: Tuple[Collector, Channel]) -> None:
    _, to = collector
    told: List[Any] = []
    telemetry = ready.Telemetry(metrics=False)
    channel.add_interceptor(telemetry)
    penstock.set_exception_hook(lambda *what: told.append(what))
    flush = telemetry.flush
    telemetry.flush = lambda *arguments: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    try:
        with telemetry.export(to, interval=0.01):
            eventually(lambda: len(told) > 1)
            telemetry.flush = flush  # type: ignore[method-assign]
            unary(channel)
            eventually(lambda: telemetry.stats()["spans"]["taken"] == 2)
    finally:
        penstock.set_exception_hook(None)
    assert isinstance(told[0][2], ZeroDivisionError)


def test_a_signal_ends_the_wait_for_an_export(channel: Channel, collector: Tuple[Collector, Channel]) -> None:
    handler, to = collector
    go = threading.Event()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def hold() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert go.wait(60)

    handler.at_request = hold
    telemetry = ready.Telemetry(metrics=False)
    channel.add_interceptor(telemetry)
    unary(channel)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            telemetry.flush(to, 30)
        assert telemetry.stats()["spans"]["kept"] == 2
    finally:
        signal.signal(signal.SIGUSR1, before)
        go.set()
    eventually(lambda: telemetry.stats()["spans"]["taken"] == 2)


def test_a_child_exports_nothing_of_its_parent(server: str, collector: Tuple[Collector, Channel]) -> None:
    """The child ends as a program does, with the functions of atexit."""
    handler, to = collector
    text = """
import warnings
from penstock import ready
# Python 3.12 warns of a fork while there are threads.
warnings.simplefilter("ignore", DeprecationWarning)
telemetry = ready.Telemetry()
channel = penstock.Channel(target, tls=False, interceptors=[telemetry])
export = telemetry.export(penstock.Channel(collector, tls=False), interval=3600)
channel.unary_unary("/penstock.Echo/Unary")(b"x")
if os.fork() == 0:
    assert telemetry.stats()["spans"]["kept"] == 0
    sys.exit()
assert os.wait()[1] == 0
assert telemetry.stats()["spans"]["kept"] == 2
"""
    assert ended(program(f"collector = {to.target!r}" + text, server)) == ("", "")
    assert [method for method, _ in handler.requests] == [METRICS, SPANS]


def test_metrics_of_many_methods_go_in_several_requests(
    channel: Channel, collector: Tuple[Collector, Channel]
) -> None:
    handler, to = collector
    telemetry = ready.Telemetry(spans=False, max_methods=1000)
    channel.add_interceptor(telemetry)
    for number in range(700):
        channel.unary_unary(f"/penstock.Echo/Method{number}").future(b"x").code()
    assert telemetry.flush(to, 60) is StatusCode.OK
    assert len(handler.requests) > 1
    names: List[bytes] = []
    for _, request in handler.requests:
        assert len(request) <= 1 << 20
        names += sorted(set(re.findall(rb"Method[0-9]+", request)))
    assert sorted(names) == sorted(b"Method%d" % number for number in range(700))


def test_each_method_goes_alone_if_even_one_makes_a_large_request(
    channel: Channel, collector: Tuple[Collector, Channel]
) -> None:
    handler, to = collector
    telemetry = ready.Telemetry(spans=False, resource={"large": "x" * (1 << 20)})
    channel.add_interceptor(telemetry)
    for number in range(5):
        channel.unary_unary(f"/penstock.Echo/Method{number}").future(b"x").code()
    assert telemetry.flush(to, 60) is StatusCode.OK
    names = [sorted(set(re.findall(rb"Method[0-9]", request))) for _, request in handler.requests]
    assert names == [[b"Method%d" % number] for number in range(5)]


def test_a_warning_of_the_collector_is_shown(channel: Channel, collector: Tuple[Collector, Channel]) -> None:
    """ExportTraceServiceResponse.partial_success: one span is rejected, with a message."""
    handler, to = collector
    handler.answer = b"\x0a\x08\x08\x01\x12\x04late"
    telemetry = ready.Telemetry(metrics=False)
    channel.add_interceptor(telemetry)
    unary(channel)
    assert telemetry.flush(to) is StatusCode.OK
    figures = telemetry.stats()
    assert figures["spans"] == {"kept": 0, "bytes": 0, "taken": 1, "dropped": 0, "refused": 1}
    assert figures["exports"] == {"sent": 1, "failed": 0, "code": 0, "message": "late"}
