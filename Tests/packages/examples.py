"""Programs in the manner of grpcio's documented examples, each a function."""

import json
import queue
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

from using import TARGET, case, channel, expect, failure, main, sync  # isort: skip
import grpc
import helloworld_pb2
import helloworld_pb2_grpc


def text(value):
    return json.dumps(value).encode()


class MapStub:
    """As grpcio-tools generates a stub; the messages are JSON."""

    def __init__(self, channel):
        json_both = {"request_serializer": text, "response_deserializer": json.loads}
        for name in ("GetFeature", "Metadata", "Flaky", "Slow", "Deadline"):
            setattr(self, name, channel.unary_unary(f"/examples.Map/{name}", **json_both))
        for name in ("ListFeatures", "Search"):
            setattr(self, name, channel.unary_stream(f"/examples.Map/{name}", **json_both))
        self.RecordRoute = channel.stream_unary("/examples.Map/RecordRoute", **json_both)
        self.RouteChat = channel.stream_stream("/examples.Map/RouteChat", **json_both)


def place():
    return str(uuid.uuid4())


@case
def greeter():
    with channel() as opened:
        stub = helloworld_pb2_grpc.GreeterStub(opened)
        expect(stub.SayHello(helloworld_pb2.HelloRequest(name="you")).message, "Hello, you!")


@case
def greeter_with_options():
    """A user agent of its own, and a timeout."""
    options = [("grpc.lb_policy_name", "pick_first"), ("grpc.enable_retries", 0), ("grpc.keepalive_timeout_ms", 10000)]
    with channel(options=options) as opened:
        stub = helloworld_pb2_grpc.GreeterStub(opened)
        expect(stub.SayHello(helloworld_pb2.HelloRequest(name="you"), timeout=60).message, "Hello, you!")


@case
def route_guide():
    """The four kinds of calls."""
    with channel() as opened:
        stub, here = MapStub(opened), place()
        expect(stub.GetFeature("1,1"), "a mill")
        expect(list(stub.ListFeatures("")), [["1,1", "a mill"], ["1,2", "a bridge"], ["5,5", "a castle"]])
        expect(stub.RecordRoute(iter(["1,1", "2,2", "5,5"])), {"points": 3, "features": 2})
        notes = ((here, note) for note in ("first", "second", "third"))
        expect(list(stub.RouteChat(notes)), ["first", "first", "second"])


@case
def multiplex():
    """Two stubs on one channel."""
    with channel() as opened:
        greeting = helloworld_pb2_grpc.GreeterStub(opened).SayHello.future(helloworld_pb2.HelloRequest(name="you"))
        expect(MapStub(opened).GetFeature("5,5"), "a castle")
        expect(greeting.result().message, "Hello, you!")


@case
def many_threads():
    with channel() as opened, ThreadPoolExecutor(16) as pool:
        stub = MapStub(opened)
        expect(list(pool.map(stub.GetFeature, ["1,1", "1,2"] * 100)), ["a mill", "a bridge"] * 100)


@case
def metadata():
    with channel() as opened:
        answer, call = MapStub(opened).Metadata.with_call("", metadata=(("x-one", "1"), ("x-two-bin", b"\x00")))
        expect(answer, [["x-one", "1"], ["x-two-bin", "00"]])
        expect([pair for pair in call.initial_metadata() if pair[0] == "x-place"], [("x-place", "headers")])
        expect([tuple(pair) for pair in call.trailing_metadata()], [("x-place", "trailers"), ("x-data-bin", b"\x00\xff")])


@case
def errors():
    with channel() as opened:
        error = failure(grpc.RpcError, MapStub(opened).GetFeature, "9,9")
        expect((error.code(), error.details()), (grpc.StatusCode.NOT_FOUND, "nothing is at 9,9"))
        expect(str(error.code()), "StatusCode.NOT_FOUND")


@case
def cancellation():
    """A search that is cancelled by another thread while this one reads it."""
    with channel() as opened:
        call = MapStub(opened).Search("")
        expect(next(call), "first")
        threading.Thread(target=call.cancel).start()
        error = failure(grpc.RpcError, next, call)
        expect((error is call, error.code(), call.cancelled()), (True, grpc.StatusCode.CANCELLED, True))
        unary = MapStub(opened).Slow.future("")
        expect((unary.cancel(), unary.cancelled()), (True, True))
        failure(grpc.FutureCancelledError, unary.result)


@case
def timeouts():
    with channel() as opened:
        error = failure(grpc.RpcError, MapStub(opened).Slow, "", timeout=0.05)
        expect(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        expect(50 < MapStub(opened).Deadline("", timeout=60) < 61, True, "the server's time")
        failure(grpc.FutureTimeoutError, MapStub(opened).Slow.future("").result, timeout=0.01)


@case
def wait_for_ready():
    with channel() as opened:
        expect(MapStub(opened).GetFeature("1,1", wait_for_ready=True, timeout=60), "a mill")
    with sync.insecure_channel("127.0.0.1:1") as nowhere:
        expect(failure(grpc.RpcError, MapStub(nowhere).GetFeature, "1,1").code(), grpc.StatusCode.UNAVAILABLE)
        error = failure(grpc.RpcError, MapStub(nowhere).GetFeature, "1,1", wait_for_ready=True, timeout=0.1)
        expect(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


@case
def retries():
    """By a service config."""
    policy = {"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
              "retryableStatusCodes": ["UNAVAILABLE"]}
    config = json.dumps({"methodConfig": [{"name": [{"service": "examples.Map"}], "retryPolicy": policy}]})
    with channel(options=[("grpc.enable_retries", 1), ("grpc.service_config", config)]) as opened:
        expect(MapStub(opened).Flaky(place()), 3)
    with channel() as opened:
        expect(failure(grpc.RpcError, MapStub(opened).Flaky, place()).code(), grpc.StatusCode.UNAVAILABLE)


@case
def compression():
    with channel(compression=grpc.Compression.Gzip) as opened:
        expect(MapStub(opened).GetFeature("1,1"), "a mill")
        expect(MapStub(opened).GetFeature("1,1", compression=grpc.Compression.Deflate), "a mill")


@case
def keepalive():
    options = [("grpc.keepalive_time_ms", 10000), ("grpc.keepalive_timeout_ms", 5000),
               ("grpc.keepalive_permit_without_calls", True), ("grpc.http2.max_pings_without_data", 5)]
    with channel(options=options) as opened:
        expect(MapStub(opened).GetFeature("1,1"), "a mill")


@case
def connectivity():
    states = queue.Queue()
    with channel() as opened:
        opened.subscribe(states.put, try_to_connect=True)
        while states.get(timeout=60) is not grpc.ChannelConnectivity.READY:
            pass
        opened.unsubscribe(states.put)
        sync.channel_ready_future(opened).result(timeout=60)
        expect(MapStub(opened).GetFeature("1,1"), "a mill")


class Details(grpc.ClientCallDetails):
    def __init__(self, details, metadata):
        self.method, self.timeout, self.credentials = details.method, details.timeout, details.credentials
        self.metadata, self.wait_for_ready, self.compression = metadata, None, None


class AddHeader(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    def __init__(self, name, value):
        self.pair = (name, value)

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(Details(details, [*(details.metadata or ()), self.pair]), request)

    intercept_stream_stream = intercept_unary_unary


class DefaultValue(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, continuation, details, request):
        call = continuation(details, request)
        return call if call.code() is grpc.StatusCode.OK else Answer("nothing")


class Answer(grpc.Future, grpc.Call):
    """The answer of an interceptor, in place of a call."""

    def __init__(self, answer):
        self.answer = answer

    def result(self, timeout=None):
        return self.answer

    def done(self):
        return True

    def code(self):
        return grpc.StatusCode.OK

    def nothing(self, *_, **__):
        return None

    cancel = cancelled = running = exception = traceback = is_active = time_remaining = nothing
    initial_metadata = trailing_metadata = details = add_callback = add_done_callback = nothing


@case
def interceptors():
    with channel() as opened:
        stub = MapStub(sync.intercept_channel(opened, AddHeader("x-a", "1"), AddHeader("x-b", "2"), DefaultValue()))
        expect(stub.Metadata(""), [["x-a", "1"], ["x-b", "2"]])
        expect(stub.GetFeature("9,9"), "nothing")
        expect(stub.GetFeature.future("1,1").result(), "a mill")
        expect(list(stub.RouteChat(iter([(place(), "note")]))), [])


class Ticket(grpc.AuthMetadataPlugin):
    def __call__(self, context, callback):
        callback((("x-signature", context.method_name),), None)


@case
def credentials_of_calls():
    """Over a channel that is local, so it counts as protected. grpcio's needs a server with such credentials, too."""
    token, plugin = sync.access_token_call_credentials("t0ken"), sync.metadata_call_credentials(Ticket())
    both = sync.composite_call_credentials(token, plugin)
    with channel() as opened:
        error = failure(grpc.RpcError, MapStub(opened).Metadata, "", credentials=both)
        expect(error.code(), grpc.StatusCode.UNAUTHENTICATED)
        expect(MapStub(opened).GetFeature("1,1"), "a mill")
    expect(isinstance(both, grpc.CallCredentials), True)
    expect(TARGET.startswith("127.0.0.1:"), True)


if __name__ == "__main__":
    main()
