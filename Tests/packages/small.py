"""The small packages: generated stubs, grpcio-status with googleapis-common-protos, grpcio-health-checking,
grpcio-reflection, google.api_core's wrappers, and OpenTelemetry's interceptors; sync and with asyncio."""

import time

from using import TARGET, WAY, aio_channel, case, channel, expect, failure, main  # isort: skip
import grpc
import helloworld_pb2
import helloworld_pb2_grpc
from google.api_core import exceptions, grpc_helpers, grpc_helpers_async
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status
from opentelemetry import trace
from opentelemetry.instrumentation.grpc import (
    GrpcAioInstrumentorClient,
    GrpcInstrumentorClient,
    aio_client_interceptors,
    client_interceptor,
)
from opentelemetry.instrumentation.grpc.grpcext import intercept_channel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

YOU, NOBODY = helloworld_pb2.HelloRequest(name="you"), helloworld_pb2.HelloRequest(name="nobody")
SERVING = health_pb2.HealthCheckResponse.SERVING


class Spans:
    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def seen(self, count):
        """The spans, as soon as there are so many: that of a future ends after its result has come."""
        until = time.monotonic() + 60
        while len(self.exporter.get_finished_spans()) < count:
            expect(time.monotonic() < until, True, f"{count} spans")
            time.sleep(0.001)
        return [(span.name, span.status.status_code, span.attributes["rpc.grpc.status_code"])
                for span in self.exporter.get_finished_spans()]

    def parent(self):
        """The header that the newest span has sent, without its flags."""
        context = self.exporter.get_finished_spans()[-1].context
        return f"00-{context.trace_id:032x}-{context.span_id:016x}"


NAME = "/helloworld.Greeter/SayHello"


@case
def spans_of_interceptors():
    spans = Spans()
    with channel() as opened:
        stub = helloworld_pb2_grpc.GreeterStub(intercept_channel(opened, client_interceptor(spans.provider)))
        answer, call = stub.SayHello.with_call(YOU)
        expect((answer.message, dict(call.trailing_metadata())["x-traceparent"][:-3]), ("Hello, you!", spans.parent()))
        failure(grpc.RpcError, stub.SayHello, NOBODY)
        expect(len(list(stub.SayHelloStreamReply(YOU))), 3)
        expect(len(list(stub.SayHelloBidiStream(iter([YOU, YOU])))), 2)
        expect(stub.SayHello.future(YOU).result(timeout=60).message, "Hello, you!")
        expect(spans.seen(5), [
            (NAME, StatusCode.UNSET, 0), (NAME, StatusCode.ERROR, 9), (NAME + "StreamReply", StatusCode.UNSET, 0),
            ("/helloworld.Greeter/SayHelloBidiStream", StatusCode.UNSET, 0), (NAME, StatusCode.UNSET, 0)])


@case
async def spans_of_interceptors_with_asyncio():
    spans = Spans()
    async with aio_channel(interceptors=aio_client_interceptors(tracer_provider=spans.provider)) as opened:
        stub = helloworld_pb2_grpc.GreeterStub(opened)
        call = stub.SayHello(YOU)
        expect(((await call).message, (await call.trailing_metadata())["x-traceparent"][:-3]), ("Hello, you!", spans.parent()))
        try:
            await stub.SayHello(NOBODY)
        except grpc.aio.AioRpcError as error:
            expect(error.code(), grpc.StatusCode.FAILED_PRECONDITION)
        expect(len([reply async for reply in stub.SayHelloStreamReply(YOU)]), 3)
        expect(len([reply async for reply in stub.SayHelloBidiStream(iter([YOU, YOU]))]), 2)
        expect([(name, code) for name, code, _ in spans.seen(4)], [
            (NAME, StatusCode.UNSET), (NAME, StatusCode.ERROR), (NAME + "StreamReply", StatusCode.UNSET),
            ("/helloworld.Greeter/SayHelloBidiStream", StatusCode.UNSET)])


@case
def spans_of_an_instrumented_module():
    """The instrumentor replaces functions of the module grpc, so beside grpcio it does not see ours."""
    spans, instrumentor = Spans(), GrpcInstrumentorClient()
    if WAY == "beside":
        with channel() as opened:
            expect(helloworld_pb2_grpc.GreeterStub(opened).SayHello(YOU).message, "Hello, you!")
        return
    trace.set_tracer_provider(spans.provider)
    instrumentor.instrument(skip_dep_check=True)
    try:
        with channel() as opened:
            expect(helloworld_pb2_grpc.GreeterStub(opened).SayHello(YOU).message, "Hello, you!")
    finally:
        instrumentor.uninstrument()
    expect(spans.seen(1), [(NAME, StatusCode.UNSET, 0)])


@case
async def spans_of_an_instrumented_aio_module():
    spans, instrumentor = Spans(), GrpcAioInstrumentorClient()
    instrumentor.instrument(tracer_provider=spans.provider, skip_dep_check=True)
    try:
        async with aio_channel() as opened:
            expect((await helloworld_pb2_grpc.GreeterStub(opened).SayHello(YOU)).message, "Hello, you!")
    finally:
        instrumentor.uninstrument()
    expected = [] if WAY == "beside" else [(NAME, StatusCode.UNSET, 0)]
    expect(spans.seen(len(expected)), expected)


def check_details(status):
    info = error_details_pb2.ErrorInfo()
    expect(status.details[0].Unpack(info), True, "unpacked")
    expect((status.code, status.message, info.reason, dict(info.metadata)), (9, "not so", "BECAUSE", {"who": "nobody"}))


@case
def statuses_with_details():
    with channel() as opened:
        stub = helloworld_pb2_grpc.GreeterStub(opened)
        check_details(rpc_status.from_call(failure(grpc.RpcError, stub.SayHello, NOBODY)))
        check_details(rpc_status.from_call(stub.SayHello.future(NOBODY)))
        _, call = stub.SayHello.with_call(YOU)
        expect(rpc_status.from_call(call), None)


@case
async def statuses_with_details_with_asyncio():
    from grpc_status import _async

    async with aio_channel() as opened:
        call = helloworld_pb2_grpc.GreeterStub(opened).SayHello(NOBODY)
        check_details(await _async.from_call(call))
        try:
            await call
        except grpc.aio.AioRpcError as error:
            check_details(rpc_status.from_call(error))


@case
def health():
    with channel() as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        expect(stub.Check(health_pb2.HealthCheckRequest(service="helloworld.Greeter")).status, SERVING)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="helloworld.Greeter"))
        expect((next(watch).status, watch.cancel()), (SERVING, True))
        error = failure(grpc.RpcError, stub.Check, health_pb2.HealthCheckRequest(service="nobody"))
        expect(error.code(), grpc.StatusCode.NOT_FOUND)


@case
async def health_with_asyncio():
    async with aio_channel() as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        expect((await stub.Check(health_pb2.HealthCheckRequest(service="helloworld.Greeter"))).status, SERVING)
        async for answer in stub.Watch(health_pb2.HealthCheckRequest(service="helloworld.Greeter")):
            expect(answer.status, SERVING)
            break


@case
def reflection():
    with channel() as opened:
        database = ProtoReflectionDescriptorDatabase(opened)
        expect("helloworld.Greeter" in database.get_services(), True)
        service = DescriptorPool(database).FindServiceByName("helloworld.Greeter")
        expect("SayHello" in [method.name for method in service.methods], True)
        failure(KeyError, DescriptorPool(database).FindServiceByName, "helloworld.Nobody")


@case
def api_core_wraps_errors():
    with channel() as opened:
        stub = helloworld_pb2_grpc.GreeterStub(opened)
        error = failure(exceptions.FailedPrecondition, grpc_helpers.wrap_errors(stub.SayHello), NOBODY)
        expect((error.reason, error.domain, error.grpc_status_code),
               ("BECAUSE", "example.org", grpc.StatusCode.FAILED_PRECONDITION))
        expect([reply.message for reply in grpc_helpers.wrap_errors(stub.SayHelloStreamReply)(YOU)][0], "Hello, you!")


@case
async def api_core_wraps_errors_with_asyncio():
    async with aio_channel() as opened:
        stub = helloworld_pb2_grpc.GreeterStub(opened)
        try:
            await grpc_helpers_async.wrap_errors(stub.SayHello)(NOBODY)
        except exceptions.FailedPrecondition as error:
            expect((error.reason, error.grpc_status_code), ("BECAUSE", grpc.StatusCode.FAILED_PRECONDITION))
        else:
            raise AssertionError("nobody was greeted")
        stream = await grpc_helpers_async.wrap_errors(stub.SayHelloStreamReply)(YOU)
        expect([reply.message async for reply in stream][0], "Hello, you!")
        both = await grpc_helpers_async.wrap_errors(stub.SayHelloBidiStream)()
        await both.write(YOU)
        expect((await both.read()).message, "Hello, you!")
        await both.done_writing()
        expect(await both.read() is grpc.aio.EOF, True)


@case
def the_class_of_a_generated_service():
    """It makes its own channels, by the module grpc."""
    with channel() as opened:
        expect(helloworld_pb2_grpc.GreeterStub(opened).SayHello(YOU).message, "Hello, you!")
    if WAY == "beside":
        return
    expect(helloworld_pb2_grpc.Greeter.SayHello(YOU, TARGET, insecure=True).message, "Hello, you!")
    expect(len(list(helloworld_pb2_grpc.Greeter.SayHelloStreamReply(YOU, TARGET, insecure=True))), 3)


if __name__ == "__main__":
    main()
