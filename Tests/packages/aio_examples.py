"""Programs in the manner of grpcio's documented examples for asyncio, each a function."""

import asyncio

from using import aio, aio_channel, case, expect, main  # isort: skip
import grpc
import helloworld_pb2
import helloworld_pb2_grpc

from examples import MapStub, place


async def failed(call):
    """The error of a call."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call has succeeded")


@case
async def greeter():
    async with aio_channel() as opened:
        answer = await helloworld_pb2_grpc.GreeterStub(opened).SayHello(helloworld_pb2.HelloRequest(name="you"))
        expect(answer.message, "Hello, you!")


@case
async def route_guide():
    """The four kinds of calls; streams by iteration and by read and write."""
    async with aio_channel() as opened:
        stub, here = MapStub(opened), place()
        expect(await stub.GetFeature("1,1"), "a mill")
        expect([answer[1] async for answer in stub.ListFeatures("")], ["a mill", "a bridge", "a castle"])
        expect(await stub.RecordRoute(iter(["1,1", "2,2", "5,5"])), {"points": 3, "features": 2})
        upload = stub.RecordRoute()
        for point in ("1,1", "1,2"):
            await upload.write(point)
        await upload.done_writing()
        expect(await upload, {"points": 2, "features": 2})

        async def notes():
            for note in ("first", "second", "third"):
                yield here, note

        expect([answer async for answer in stub.RouteChat(notes())], ["first", "first", "second"])
        chat = stub.RouteChat()
        await chat.write((here, "fourth"))
        expect([await chat.read() for _ in range(3)], ["first", "second", "third"])
        await chat.done_writing()
        expect(await chat.read() is grpc.aio.EOF, True)
        expect(await chat.code(), grpc.StatusCode.OK)


@case
async def side_by_side():
    async with aio_channel() as opened:
        stub = MapStub(opened)
        expect(await asyncio.gather(*(stub.GetFeature("1,1") for _ in range(100))), ["a mill"] * 100)


@case
async def metadata():
    async with aio_channel() as opened:
        given = grpc.aio.Metadata(("x-one", "1"), ("x-two-bin", b"\x00"))
        call = MapStub(opened).Metadata("", metadata=given)
        expect(await call, [["x-one", "1"], ["x-two-bin", "00"]])
        expect((await call.initial_metadata())["x-place"], "headers")
        expect((await call.trailing_metadata()).get_all("x-data-bin"), [b"\x00\xff"])


@case
async def errors():
    async with aio_channel() as opened:
        error = await failed(MapStub(opened).GetFeature("9,9"))
        expect((error.code(), error.details()), (grpc.StatusCode.NOT_FOUND, "nothing is at 9,9"))


@case
async def cancellation():
    async with aio_channel() as opened:
        search = MapStub(opened).Search("")
        expect(await search.read(), "first")
        expect((search.cancel(), search.cancelled(), await search.code()), (True, True, grpc.StatusCode.CANCELLED))
        task = asyncio.ensure_future(wait(MapStub(opened).Slow("")))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
        raise AssertionError("the task was not cancelled")


async def wait(call):
    return await call


@case
async def timeouts():
    async with aio_channel() as opened:
        expect((await failed(MapStub(opened).Slow("", timeout=0.05))).code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        expect(50 < await MapStub(opened).Deadline("", timeout=60) < 61, True, "the server's time")


@case
async def wait_for_ready():
    async with aio_channel() as opened:
        expect(await MapStub(opened).GetFeature("1,1", wait_for_ready=True, timeout=60), "a mill")
    async with aio.insecure_channel("127.0.0.1:1") as nowhere:
        expect((await failed(MapStub(nowhere).GetFeature("1,1"))).code(), grpc.StatusCode.UNAVAILABLE)
        error = await failed(MapStub(nowhere).GetFeature("1,1", wait_for_ready=True, timeout=0.1))
        expect(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


@case
async def compression():
    async with aio_channel(compression=grpc.Compression.Gzip) as opened:
        expect(await MapStub(opened).GetFeature("1,1"), "a mill")


@case
async def connectivity():
    async with aio_channel() as opened:
        state = opened.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            await opened.wait_for_state_change(state)
            state = opened.get_state()
        await opened.channel_ready()
        expect(await MapStub(opened).GetFeature("1,1"), "a mill")


@case
async def done_callbacks():
    async with aio_channel() as opened:
        told = asyncio.Event()
        call = MapStub(opened).GetFeature("1,1")
        call.add_done_callback(lambda one: told.set() if one is call else None)
        expect(await call, "a mill")
        await asyncio.wait_for(told.wait(), 60)


class AddHeader(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, details, request):
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        metadata.add("x-a", "1")
        return await continuation(details._replace(metadata=metadata), request)


class Longer(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, details, request):
        call = await continuation(details, request)

        async def answers():
            async for answer in call:
                yield answer
            yield "the end"

        return answers()


class Default(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, details, request):
        call = await continuation(details, request)
        return call if await call.code() is grpc.StatusCode.OK else "nothing"


@case
async def interceptors():
    async with aio_channel(interceptors=[AddHeader(), Longer(), Default()]) as opened:
        stub = MapStub(opened)
        expect(await stub.Metadata(""), [["x-a", "1"]])
        expect([answer async for answer in stub.ListFeatures("")][-1], "the end")
        expect(await stub.GetFeature("9,9"), "nothing")


@case
async def a_graceful_close():
    opened = aio_channel()
    call = MapStub(opened).GetFeature("1,1")
    expect(await call, "a mill")
    hangs = MapStub(opened).Slow("")
    await opened.close(grace=0.05)
    expect(await hangs.code(), grpc.StatusCode.CANCELLED)


if __name__ == "__main__":
    main()
