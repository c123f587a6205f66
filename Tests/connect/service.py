"""The service of probe.proto, without a transport. connectrpc (apps.py) or grpcio (grpcio_server.py) carries its
calls."""

import asyncio
import collections
import contextlib
import threading

import probe_pb2 as pb

SERVICE = "/probe.Probe/"
# The service is also available below this path.
PREFIX = "/under/a/prefix"


class Call:
    """A call, as the service sees it. connectrpc and grpcio each have a subclass."""

    # Name and value of each header. The value of a "-bin" name is in base64, as it was on the wire.
    headers = ()

    def add_header(self, name, value):
        """Adds a header to the answer. Must be called before the first message."""
        raise NotImplementedError

    def add_trailer(self, name, value):
        raise NotImplementedError

    def failure(self, code, message, details):
        """Returns the exception that ends the call with this status."""
        raise NotImplementedError

    async def begin(self):
        """Called when the headers of the answer are complete."""

    def seen(self):
        """Returns the `Seen` message that describes the call."""
        raise NotImplementedError

    def value(self, name):
        return next((value for key, value in self.headers if key == name), None)

    def echo_metadata(self):
        """Sends metadata back in the headers or trailers, as its name demands."""
        for name, value in self.headers:
            if name.startswith("x-head-"):
                self.add_header(name, value)
            elif name.startswith("x-tail-"):
                self.add_trailer(name, value)


class Holds:
    """Holds calls until another call releases them. The calls may run in the event loops of several threads, because
    pyvoy has a loop for each port."""

    def __init__(self):
        self.lock = threading.Lock()
        self.waiting = collections.defaultdict(list)
        self.released = set()

    async def wait(self, key):
        if not key:
            return
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        with self.lock:
            if key in self.released:
                return
            self.waiting[key].append((loop, event))
        await event.wait()

    def release(self, key):
        with self.lock:
            self.released.add(key)
            waiting = self.waiting.pop(key, [])
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)


class Probe:
    def __init__(self):
        self.holds = Holds()
        # For each call with an x-id: its state, and the number of times that it has arrived.
        self.states = {}
        self.times = collections.Counter()

    @contextlib.asynccontextmanager
    async def follow(self, call):
        """Sends metadata back, and records the state of the call."""
        key = call.value("x-id")
        state = "cancelled"
        if key:
            self.states[key] = "running"
            self.times[key] += 1
        call.echo_metadata()
        await call.begin()
        try:
            yield call.seen()
            state = "done"
        except Exception:
            state = "done"
            raise
        finally:
            if key:
                self.states[key] = state

    async def answers(self, ask, call, seen):
        """Yields the answers to one request."""
        seen.messages += 1
        await self.holds.wait(ask.hold)
        for index in range(ask.answers or 1):
            if ask.answers >= 0:
                yield pb.Answer(data=ask.data.ljust(ask.size, b"\0"), text=ask.text, number=ask.number + index, seen=seen)
        await self.holds.wait(ask.hold_after)

    @staticmethod
    def end(ask, call):
        if ask.failure.code:
            raise call.failure(ask.failure.code, ask.failure.message, ask.failure.details)

    async def unary(self, ask, call):
        async with self.follow(call) as seen:
            seen.messages = 1
            await self.holds.wait(ask.hold)
            self.end(ask, call)
            return pb.Answer(data=ask.data.ljust(ask.size, b"\0"), text=ask.text, number=ask.number, seen=seen)

    async def server_stream(self, ask, call):
        async with self.follow(call) as seen:
            async for answer in self.answers(ask, call, seen):
                yield answer
            self.end(ask, call)

    async def client_stream(self, asks, call):
        async with self.follow(call) as seen:
            data, last = [], pb.Ask()
            async for ask in asks:
                seen.messages += 1
                await self.holds.wait(ask.hold)
                data.append(ask.data)
                last = ask
            self.end(last, call)
            return pb.Answer(data=b"".join(data).ljust(last.size, b"\0"), text=last.text, number=last.number, seen=seen)

    async def bidi(self, asks, call):
        async with self.follow(call) as seen:
            last = pb.Ask()
            async for ask in asks:
                async for answer in self.answers(ask, call, seen):
                    yield answer
                last = ask
            self.end(last, call)

    async def release(self, ask, call):
        self.holds.release(ask.text)
        return pb.Answer()

    async def state(self, ask, call):
        return pb.Answer(text=self.states.get(ask.text, ""), number=self.times[ask.text])


# The methods: name, kind, and the method of Probe that implements it.
METHODS = (
    ("Unary", "unary", Probe.unary),
    ("Get", "unary", Probe.unary),
    ("ServerStream", "server_stream", Probe.server_stream),
    ("ClientStream", "client_stream", Probe.client_stream),
    ("Bidi", "bidi_stream", Probe.bidi),
    ("Release", "unary", Probe.release),
    ("State", "unary", Probe.state),
)


class SyncProbe:
    """The service for WSGI, which has no coroutines. It does not implement `hold` and State."""

    @staticmethod
    def begin(call):
        call.echo_metadata()
        return call.seen()

    @staticmethod
    def answers(ask, call, seen):
        seen.messages += 1
        for index in range(ask.answers or 1):
            if ask.answers >= 0:
                yield pb.Answer(data=ask.data.ljust(ask.size, b"\0"), text=ask.text, number=ask.number + index, seen=seen)

    def unary(self, ask, call):
        seen = self.begin(call)
        seen.messages = 1
        Probe.end(ask, call)
        return pb.Answer(data=ask.data.ljust(ask.size, b"\0"), text=ask.text, number=ask.number, seen=seen)

    def server_stream(self, ask, call):
        yield from self.answers(ask, call, self.begin(call))
        Probe.end(ask, call)

    def client_stream(self, asks, call):
        seen = self.begin(call)
        data, last = [], pb.Ask()
        for ask in asks:
            seen.messages += 1
            data.append(ask.data)
            last = ask
        Probe.end(last, call)
        return pb.Answer(data=b"".join(data).ljust(last.size, b"\0"), text=last.text, number=last.number, seen=seen)

    def bidi(self, asks, call):
        seen = self.begin(call)
        last = pb.Ask()
        for ask in asks:
            yield from self.answers(ask, call, seen)
            last = ask
        Probe.end(last, call)


SYNC_METHODS = (
    ("Unary", "unary", SyncProbe.unary),
    ("Get", "unary", SyncProbe.unary),
    ("ServerStream", "server_stream", SyncProbe.server_stream),
    ("ClientStream", "client_stream", SyncProbe.client_stream),
    ("Bidi", "bidi_stream", SyncProbe.bidi),
)
