"""gRPC's interop cases by the names of grpc.aio: `aio_client.py --target T [--penstock] CASE...`.

Prints `ok NAME` or `FAILED NAME` for each case; `--list` prints the names. With `--penstock` the calls are made on channels
of penstock.grpc.aio, and each case has to make one. All of the public descriptions' cases are here but those that need
the credentials of a cloud.
"""

import argparse
import asyncio

import grpc.aio
import testing_pb2 as messages
import testing_pb2_grpc
from grpcio_client import GZIP, METADATA, SIZES, expect, flag, output, payload, run_cases, simple

CASES = {}
UPLOAD = (27182, 8, 1828, 45904)


def case(function):
    CASES[function.__name__] = function
    return function


class Client:
    def __init__(self, arguments):
        self.target = arguments.target
        self.aio, self.counting = grpc.aio, None
        if arguments.penstock:
            import through

            self.counting = through.load()
            _, self.aio = through.forbid()

    def open(self):
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        channel = self.aio.insecure_channel(self.target, options=options)
        if self.counting:
            channel.add_interceptor(self.counting)
        return channel

    def run(self, function):
        asyncio.run(self._run(function))

    async def _run(self, function):
        """Runs a case. A call that is cancelled at once may end before an interceptor sees it."""
        before = len(self.counting.methods) if self.counting else 0
        async with self.open() as self.channel:
            self.stub = testing_pb2_grpc.TestServiceStub(self.channel)
            await asyncio.wait_for(function(self), 120)
        if self.counting and function is not cancel_after_begin:
            expect(len(self.counting.methods) > before, True, "a call seen by our interceptor")


async def failure(work):
    """The error with which the call ends, of which the whole is read."""
    try:
        if hasattr(work, "__aiter__"):
            async for _ in work:
                pass
        else:
            await work
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call has succeeded")


def uploaded(size, **more):
    return messages.StreamingInputCallRequest(payload=payload(size), **more)


async def sizes(call):
    return [len(answer.payload.body) async for answer in call]


@case
async def empty_unary(client):
    expect(await client.stub.EmptyCall(messages.Empty()), messages.Empty())


@case
async def cacheable_unary(client):
    for _ in range(2):
        call = client.stub.CacheableUnaryCall(simple(size=19), metadata=(("x-user-ip", "1.2.3.4"),))
        await call
        expect("cache-control" in await call.initial_metadata(), True)


@case
async def large_unary(client):
    expect((await client.stub.UnaryCall(simple(314159, 271828))).payload.body, bytes(314159))


@case
async def client_compressed_unary(client):
    error = await failure(client.stub.UnaryCall(simple(314159, 271828, expect_compressed=flag(True))))
    expect(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
    for compressed in (True, False):
        answer = await client.stub.UnaryCall(simple(314159, 271828, expect_compressed=flag(compressed)),
                                             compression=GZIP if compressed else None)
        expect(answer.payload.body, bytes(314159))


@case
async def server_compressed_unary(client):
    for compressed in (True, False):
        answer = await client.stub.UnaryCall(simple(314159, 271828, response_compressed=flag(compressed)))
        expect(answer.payload.body, bytes(314159))


@case
async def client_streaming(client):
    answer = await client.stub.StreamingInputCall(uploaded(size) for size in UPLOAD)
    expect(answer.aggregated_payload_size, 74922)
    written = client.stub.StreamingInputCall()
    for size in UPLOAD:
        await written.write(uploaded(size))
    await written.done_writing()
    expect((await written).aggregated_payload_size, 74922)


@case
async def client_compressed_streaming(client):
    error = await failure(client.stub.StreamingInputCall(iter([uploaded(27182, expect_compressed=flag(True))])))
    expect(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
    for size, compressed in ((27182, True), (45904, False)):
        answer = await client.stub.StreamingInputCall(iter([uploaded(size, expect_compressed=flag(compressed))]),
                                                      compression=GZIP if compressed else None)
        expect(answer.aggregated_payload_size, size)


@case
async def server_streaming(client):
    expect(await sizes(client.stub.StreamingOutputCall(output(*SIZES))), list(SIZES))


@case
async def server_compressed_streaming(client):
    request = messages.StreamingOutputCallRequest(response_parameters=[
        messages.ResponseParameters(size=31415, compressed=flag(True)),
        messages.ResponseParameters(size=92653, compressed=flag(False))])
    expect(await sizes(client.stub.StreamingOutputCall(request)), [31415, 92653])


@case
async def ping_pong(client):
    call = client.stub.FullDuplexCall()
    for size, wanted in zip(UPLOAD, SIZES, strict=True):
        await call.write(output(wanted, size=size))
        expect((await call.read()).payload.body, bytes(wanted))
    await call.done_writing()
    expect(await call.read() is grpc.aio.EOF, True)
    expect(await call.code(), grpc.StatusCode.OK)


@case
async def half_duplex(client):
    expect(await sizes(client.stub.HalfDuplexCall(iter([output(size, size=27182) for size in SIZES]))), list(SIZES))


@case
async def empty_stream(client):
    expect(await sizes(client.stub.FullDuplexCall(iter(()))), [])
    call = client.stub.FullDuplexCall()
    await call.done_writing()
    expect(await call.read() is grpc.aio.EOF, True)


@case
async def custom_metadata(client):
    unary = client.stub.UnaryCall(simple(314159, 271828), metadata=METADATA)
    expect((await unary).payload.body, bytes(314159))
    both = client.stub.FullDuplexCall(iter([output(314159, size=271828)]), metadata=grpc.aio.Metadata(*METADATA))
    expect(await sizes(both), [314159])
    for call in (unary, both):
        expect((await call.initial_metadata())[METADATA[0][0]], METADATA[0][1])
        expect((await call.trailing_metadata())[METADATA[1][0]], METADATA[1][1])


async def echo_status(client, message):
    status = messages.EchoStatus(code=2, message=message)
    for call in (client.stub.UnaryCall(messages.SimpleRequest(response_status=status)),
                 client.stub.FullDuplexCall(iter([output(response_status=status)]))):
        error = await failure(call)
        expect((error.code(), error.details()), (grpc.StatusCode.UNKNOWN, message))
        expect((await call.code(), await call.details()), (grpc.StatusCode.UNKNOWN, message))


@case
async def status_code_and_message(client):
    await echo_status(client, "test status message")


@case
async def special_status_message(client):
    await echo_status(client, "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n")


@case
async def unimplemented_method(client):
    error = await failure(client.stub.UnimplementedCall(messages.Empty()))
    expect(error.code(), grpc.StatusCode.UNIMPLEMENTED)


@case
async def unimplemented_service(client):
    stub = testing_pb2_grpc.UnimplementedServiceStub(client.channel)
    expect((await failure(stub.UnimplementedCall(messages.Empty()))).code(), grpc.StatusCode.UNIMPLEMENTED)


@case
async def cancel_after_begin(client):
    call = client.stub.StreamingInputCall()
    expect((call.cancel(), call.cancelled(), await call.code()), (True, True, grpc.StatusCode.CANCELLED))
    try:
        await call
    except asyncio.CancelledError:
        return
    raise AssertionError("the call has succeeded")


@case
async def cancel_after_first_response(client):
    call = client.stub.FullDuplexCall()
    await call.write(output(31415, size=27182))
    expect(len((await call.read()).payload.body), 31415)
    expect((call.cancel(), call.cancelled(), await call.code()), (True, True, grpc.StatusCode.CANCELLED))


@case
async def timeout_on_sleeping_server(client):
    call = client.stub.FullDuplexCall(timeout=0.001)
    expect(await call.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


@case
async def rpc_soak(client):
    for _ in range(50):
        await large_unary(client)


@case
async def channel_soak(client):
    for _ in range(10):
        async with client.open() as channel:
            answer = await testing_pb2_grpc.TestServiceStub(channel).UnaryCall(simple(314159, 271828))
            expect(len(answer.payload.body), 314159)


@case
async def concurrent_large_unary(client):
    answers = await asyncio.gather(*(client.stub.UnaryCall(simple(314159, 271828)) for _ in range(100)))
    expect({len(answer.payload.body) for answer in answers}, {314159})


if __name__ == "__main__":
    run_cases(CASES, argparse.ArgumentParser(), Client)
