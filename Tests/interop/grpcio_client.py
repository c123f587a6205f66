"""gRPC's interop cases with grpcio's client: `grpcio_client.py --target T [--tls DIR [--mutual]] [--tap] CASE...`.

Prints `ok NAME` or `FAILED NAME` for each case, as interop_client does; `--list` prints the names. With `--penstock` the
same calls are made on channels of penstock.grpc, and each case has to make one.
"""

import argparse
import asyncio
import threading
import time
import traceback

import grpc
import helloworld_pb2
import helloworld_pb2_grpc
import tap
import testing_pb2 as messages
import testing_pb2_grpc

MIB = 1 << 20
GZIP = grpc.Compression.Gzip
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def expect(found, wanted, what="value"):
    if found != wanted:
        raise AssertionError(f"{what} is {str(found)[:200]!r}, not {str(wanted)[:200]!r}")


def payload(size):
    return messages.Payload(body=bytes(size))


def flag(value):
    return messages.BoolValue(value=value)


def simple(response_size=0, size=0, **more):
    return messages.SimpleRequest(response_size=response_size, payload=payload(size), **more)


def output(*sizes, size=0, **more):
    return messages.StreamingOutputCallRequest(
        response_parameters=[messages.ResponseParameters(size=size) for size in sizes], payload=payload(size), **more)


def failure(call, *arguments, **more):
    try:
        result = call(*arguments, **more)
        for _ in result if hasattr(result, "__iter__") else ():
            pass
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call has succeeded")


class Client:
    def __init__(self, arguments):
        self.arguments = arguments
        self.watch = None
        self.grpc, self.aio, self.counting = grpc, grpc.aio, None
        if arguments.penstock:
            import through

            self.counting = through.load()
            self.grpc, self.aio = through.forbid()
        self.target = arguments.target
        if arguments.tap:
            self.watch = tap.Watch()
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True).start()
            self.target = asyncio.run_coroutine_threadsafe(self.watch.listen(arguments.target), loop).result(10)
        self.channel = self.open()
        self.stub = testing_pb2_grpc.TestServiceStub(self.channel)

    def open(self):
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if not self.arguments.tls:
            return self.grpc.insecure_channel(self.target, options=options)

        def read(name):
            with open(f"{self.arguments.tls}/{name}", "rb") as file:
                return file.read()

        own = (read("client.key"), read("client.pem")) if self.arguments.mutual else (None, None)
        credentials = self.grpc.ssl_channel_credentials(read("ca.pem"), *own)
        return self.grpc.secure_channel(self.target, credentials, options=options)

    def run(self, function):
        """Runs a case. A call that is cancelled at once may end before an interceptor sees it."""
        before = len(self.counting.methods) if self.counting else 0
        function(self)
        if self.counting and function is not cancel_after_begin:
            expect(len(self.counting.methods) > before, True, "a call seen by our interceptor")

    def compressed(self):
        """The compressed flags of the answers on the newest stream; None without a tap."""
        return [bool(flag) for flag, _ in self.watch.newest_answer().messages] if self.watch else None


@case
def empty_unary(client):
    expect(client.stub.EmptyCall(messages.Empty()), messages.Empty())


@case
def large_unary(client):
    expect(client.stub.UnaryCall(simple(314159, 271828)).payload.body, bytes(314159))


@case
def client_compressed_unary(client):
    error = failure(client.stub.UnaryCall, simple(314159, 271828, expect_compressed=flag(True)))
    expect(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
    for compressed in (True, False):
        answer = client.stub.UnaryCall(simple(314159, 271828, expect_compressed=flag(compressed)),
                                       compression=GZIP if compressed else None)
        expect(answer.payload.body, bytes(314159))


@case
def server_compressed_unary(client):
    for compressed in (True, False):
        answer = client.stub.UnaryCall(simple(314159, 271828, response_compressed=flag(compressed)))
        expect(answer.payload.body, bytes(314159))
        if client.watch:
            expect(client.compressed(), [compressed])


@case
def client_streaming(client):
    sizes = (27182, 8, 1828, 45904)
    answer = client.stub.StreamingInputCall(
        messages.StreamingInputCallRequest(payload=payload(size)) for size in sizes)
    expect(answer.aggregated_payload_size, 74922)


@case
def client_compressed_streaming(client):
    def requests(size, compressed):
        yield messages.StreamingInputCallRequest(payload=payload(size), expect_compressed=flag(compressed))

    error = failure(client.stub.StreamingInputCall, requests(27182, True))
    expect(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
    for size, compressed in ((27182, True), (45904, False)):
        answer = client.stub.StreamingInputCall(requests(size, compressed), compression=GZIP if compressed else None)
        expect(answer.aggregated_payload_size, size)


SIZES = (31415, 9, 2653, 58979)


@case
def server_streaming(client):
    found = [answer.payload.body for answer in client.stub.StreamingOutputCall(output(*SIZES))]
    expect(found, [bytes(size) for size in SIZES])


@case
def server_compressed_streaming(client):
    request = messages.StreamingOutputCallRequest(response_parameters=[
        messages.ResponseParameters(size=31415, compressed=flag(True)),
        messages.ResponseParameters(size=92653, compressed=flag(False))])
    found = [answer.payload.body for answer in client.stub.StreamingOutputCall(request)]
    expect(found, [bytes(31415), bytes(92653)])
    if client.watch:
        expect(client.compressed(), [True, False])


class Requests:
    """A stream of requests that are given one at a time."""

    def __init__(self):
        self.items = []
        self.changed = threading.Condition()

    def give(self, item):
        with self.changed:
            self.items.append(item)
            self.changed.notify()

    def __iter__(self):
        return self

    def __next__(self):
        with self.changed:
            self.changed.wait_for(lambda: self.items, 20)
            item = self.items.pop(0)
        if item is None:
            raise StopIteration
        return item


@case
def ping_pong(client):
    requests = Requests()
    answers = client.stub.FullDuplexCall(requests)
    for size, wanted in zip((27182, 8, 1828, 45904), SIZES, strict=True):
        requests.give(output(wanted, size=size))
        expect(next(answers).payload.body, bytes(wanted))
    requests.give(None)
    expect(list(answers), [])
    expect(answers.code(), grpc.StatusCode.OK)


@case
def half_duplex(client):
    answers = client.stub.HalfDuplexCall(iter([output(size, size=27182) for size in SIZES]))
    expect([answer.payload.body for answer in answers], [bytes(size) for size in SIZES])


@case
def empty_stream(client):
    expect(list(client.stub.FullDuplexCall(iter(()))), [])


METADATA = (("x-grpc-test-echo-initial", "test_initial_metadata_value"),
            ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"))


@case
def custom_metadata(client):
    answer, call = client.stub.UnaryCall.with_call(simple(314159, 271828), metadata=METADATA)
    expect(answer.payload.body, bytes(314159))
    expect(dict(call.initial_metadata()).get(METADATA[0][0]), METADATA[0][1])
    expect(dict(call.trailing_metadata()).get(METADATA[1][0]), METADATA[1][1])
    stream = client.stub.FullDuplexCall(iter([output(314159, size=271828)]), metadata=METADATA)
    expect(dict(stream.initial_metadata()).get(METADATA[0][0]), METADATA[0][1])
    expect([len(answer.payload.body) for answer in stream], [314159])
    expect(dict(stream.trailing_metadata()).get(METADATA[1][0]), METADATA[1][1])


def echo_status(client, message):
    status = messages.EchoStatus(code=2, message=message)
    for error in (failure(client.stub.UnaryCall, messages.SimpleRequest(response_status=status)),
                  failure(client.stub.FullDuplexCall, iter([output(response_status=status)]))):
        expect(error.code(), grpc.StatusCode.UNKNOWN)
        expect(error.details(), message)


@case
def status_code_and_message(client):
    echo_status(client, "test status message")


@case
def special_status_message(client):
    echo_status(client, "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n")


@case
def unimplemented_method(client):
    expect(failure(client.stub.UnimplementedCall, messages.Empty()).code(), grpc.StatusCode.UNIMPLEMENTED)


@case
def unimplemented_service(client):
    stub = testing_pb2_grpc.UnimplementedServiceStub(client.channel)
    expect(failure(stub.UnimplementedCall, messages.Empty()).code(), grpc.StatusCode.UNIMPLEMENTED)


@case
def cancel_after_begin(client):
    requests = Requests()
    call = client.stub.StreamingInputCall.future(requests)
    call.cancel()
    requests.give(None)
    expect(call.cancelled(), True)
    expect(call.code(), grpc.StatusCode.CANCELLED)


@case
def cancel_after_first_response(client):
    requests = Requests()
    answers = client.stub.FullDuplexCall(requests)
    requests.give(output(31415, size=27182))
    expect(len(next(answers).payload.body), 31415)
    answers.cancel()
    requests.give(None)
    expect(failure(list, answers).code(), grpc.StatusCode.CANCELLED)


@case
def timeout_on_sleeping_server(client):
    requests = Requests()
    answers = client.stub.FullDuplexCall(requests, timeout=0.001)
    requests.give(output(size=27182))
    expect(failure(list, answers).code(), grpc.StatusCode.DEADLINE_EXCEEDED)
    requests.give(None)


@case
def timeout_at_server(client):
    """The deadline ends the call, whose answer would come a minute later."""
    request = messages.StreamingOutputCallRequest(
        response_parameters=[messages.ResponseParameters(size=1, interval_us=60_000_000)])
    started = time.monotonic()
    expect(failure(client.stub.StreamingOutputCall, request, timeout=0.2).code(), grpc.StatusCode.DEADLINE_EXCEEDED)
    expect(time.monotonic() - started < 5, True, "in time")


@case
def cacheable_unary(client):
    for _ in range(2):
        _, call = client.stub.CacheableUnaryCall.with_call(simple(size=19), metadata=(("x-user-ip", "1.2.3.4"),))
        expect("cache-control" in dict(call.initial_metadata()), True)


@case
def rpc_soak(client):
    for _ in range(50):
        large_unary(client)


@case
def channel_soak(client):
    for _ in range(10):
        with client.open() as channel:
            answer = testing_pb2_grpc.TestServiceStub(channel).UnaryCall(simple(314159, 271828))
            expect(len(answer.payload.body), 314159)


@case
def headers_first(client):
    requests = Requests()
    answers = client.stub.FullDuplexCall(requests, metadata=METADATA)
    expect(dict(answers.initial_metadata()).get(METADATA[0][0]), METADATA[0][1])
    requests.give(output(7))
    expect(len(next(answers).payload.body), 7)
    requests.give(None)
    expect(list(answers), [])


@case
def large_messages(client):
    for size in (MIB, 4 * MIB, 16 * MIB, 64 * MIB - 64):
        expect(len(client.stub.UnaryCall(simple(size, size)).payload.body), size)
    expect(len(client.stub.UnaryCall(simple(16 * MIB, 16 * MIB, response_compressed=flag(True)),
                                     compression=GZIP).payload.body), 16 * MIB)


@case
def unary_1000(client):
    calls = [client.stub.UnaryCall.future(simple(size, 100)) for size in range(1000)]
    expect([len(call.result(30).payload.body) for call in calls], list(range(1000)))


@case
def streams_1000(client):
    """All 1,000 streams are open, and each has had an answer, before the first ends."""

    async def one(stub, size, reached, go_on):
        call = stub.FullDuplexCall()
        await call.write(output(size))
        expect(len((await call.read()).payload.body), size)
        reached.append(size)
        if len(reached) == 1000:
            go_on.set()
        await go_on.wait()
        await call.done_writing()
        expect(await call.code(), grpc.StatusCode.OK)

    async def all_of_them():
        go_on, reached = asyncio.Event(), []
        async with client.aio.insecure_channel(client.target) as channel:
            if client.counting:
                channel.add_interceptor(client.counting)
            stub = testing_pb2_grpc.TestServiceStub(channel)
            await asyncio.wait_for(asyncio.gather(*(one(stub, size, reached, go_on) for size in range(1000))), 60)

    if client.arguments.tls:
        return
    asyncio.run(all_of_them())


@case
def many_both_ways(client):
    def requests():
        for _ in range(500):
            yield output(3000, size=2000)

    found = [len(answer.payload.body) for answer in client.stub.FullDuplexCall(requests())]
    expect(found, [3000] * 500)


@case
def compressed_channel(client):
    """The client compresses its request, and the server its answer, because metadata asks it to."""
    answer = client.stub.UnaryCall(simple(50000, 50000), compression=GZIP, metadata=(("x-compress", "gzip"),))
    expect(len(answer.payload.body), 50000)
    if client.watch:
        expect(client.compressed(), [True])


@case
def metadata_echo(client):
    """Order, repeated names and any bytes survive the way to the server and back; grpcio does not join values."""
    sent = [("x-headers-a", "1"), ("x-headers-b", "two words"), ("x-headers-a", "2"),
            ("x-headers-bin", bytes(range(256))), ("x-headers-bin", b""), ("x-trailers-a", "~!@#$%^&*(),;"),
            ("x-trailers-bin", b"\x00"), ("x-trailers-bin", b"\xff\xff"), ("x-trailers-a", "again")]
    _, call = client.stub.EmptyCall.with_call(messages.Empty(), metadata=sent)
    expect([pair for pair in map(tuple, call.initial_metadata()) if pair[0].startswith("x-")],
           [pair for pair in sent if pair[0].startswith("x-headers")])
    expect([pair for pair in map(tuple, call.trailing_metadata()) if pair[0].startswith("x-")],
           [pair for pair in sent if pair[0].startswith("x-trailers")])


@case
def error_details(client):
    details = b"\x08\x05\x12\x04gone"
    error = failure(client.stub.UnaryCall, simple(), metadata=(
        ("x-status", "5"), ("x-message-bin", "gone: \u263a".encode()), ("x-details-bin", details)))
    expect(error.code(), grpc.StatusCode.NOT_FOUND)
    expect(error.details(), "gone: \u263a")
    expect(dict(error.trailing_metadata()).get("grpc-status-details-bin"), details)


@case
def greeter(client):
    stub = helloworld_pb2_grpc.GreeterStub(client.channel)
    expect(stub.SayHello(helloworld_pb2.HelloRequest(name="you")).message, "Hello, you!")
    found = [reply.message for reply in stub.SayHelloStreamReply(helloworld_pb2.HelloRequest(name="you"))]
    expect(found, ["Hello, you!"] * 3)
    names = (helloworld_pb2.HelloRequest(name=name) for name in "ab")
    expect([reply.message for reply in stub.SayHelloBidiStream(names)], ["Hello, a!", "Hello, b!"])


@case
def echo(client):
    data = bytes(range(256)) * 5
    channel = client.channel
    expect(channel.unary_unary("/penstock.Echo/Unary")(data), data)
    expect(list(channel.unary_stream("/penstock.Echo/ServerStream")(data, metadata=(("x-repeat", "3"),))), [data] * 3)
    expect(channel.stream_unary("/penstock.Echo/ClientStream")(iter([data, b"", data])), data + data)
    expect(list(channel.stream_stream("/penstock.Echo/Bidi")(iter([data, b"", data]))), [data, b"", data])


@case
def health(client):
    check = client.channel.unary_unary("/grpc.health.v1.Health/Check")
    expect(check(b""), b"\x08\x01")
    expect(check(b"\x0a\x0dpenstock.Echo"), b"\x08\x01")
    expect(failure(check, b"\x0a\x04none").code(), grpc.StatusCode.NOT_FOUND)
    watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
    expect(next(watch), b"\x08\x01")
    watch.cancel()


def run_cases(cases, parser, make):
    """Runs the cases that the command line names, with the client that ``make`` makes of the arguments. Gives the client,
    or None with --list, which prints the names."""
    parser.add_argument("--target")
    parser.add_argument("--penstock", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(cases))
        return None
    client = make(arguments)
    for name in arguments.cases:
        try:
            client.run(cases[name])
            print("ok", name, flush=True)
        except Exception:  # noqa: BLE001 - a case may fail in any way.
            trace = traceback.format_exc().strip().splitlines()
            print(*trace[-4:], sep="\n")
            print("FAILED", name, flush=True)
    return client


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tls")
    parser.add_argument("--mutual", action="store_true")
    parser.add_argument("--tap", action="store_true")
    client = run_cases(CASES, parser, Client)
    if client is not None:
        client.channel.close()


if __name__ == "__main__":
    main()
