"""Receive windows on a long path: they grow with what the calls take, up to a bound. A relay delays all bytes, and
reads the frames that pass."""

from __future__ import annotations

import collections
import selectors
import socket
import subprocess
import threading
import time
from typing import Any, Deque, Dict, Iterator, List, Optional, Tuple

import pytest

from conftest import SERVER_PYTHON
from penstock import Channel

# The server finds a second PING without data in between too many.
SERVER = """
import os, sys
from concurrent import futures
import grpc

server = grpc.server(
    futures.ThreadPoolExecutor(8), options=[("grpc.http2.max_ping_strikes", 1), ("grpc.so_reuseport", 0)]
)
echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
stream = grpc.unary_stream_rpc_method_handler(lambda request, context: (bytes(65536) for _ in range(int(request))))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"Stream": stream, "Echo": echo}),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
os._exit(0)
"""
MIB = 1 << 20
SIZE = 65536
DELAY = 0.05
PATIENCE = 60


class Frames:
    """The frames of one direction of a connection of HTTP/2."""

    def __init__(self, preface: int) -> None:
        self._skip = preface
        self._rest = b""

    def read(self, data: bytes) -> Iterator[Tuple[int, int, bytes]]:
        """Gives the type, the flags and the content of each frame that is complete; of DATA only the first bytes."""
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._rest += data[skipped:]
        at = 0
        while len(self._rest) - at >= 9:
            end = at + 9 + int.from_bytes(self._rest[at : at + 3], "big")
            if end > len(self._rest):
                break
            yield self._rest[at + 3], self._rest[at + 4], self._rest[at + 9 : end]
            at = end
        self._rest = self._rest[at:]


class Way:
    """One direction of a connection: the pieces on their way, each with the time when it is due, and its frames."""

    def __init__(self, source: socket.socket, target: socket.socket, frames: Frames, is_answer: bool) -> None:
        self.source = source
        self.target = target
        self.frames = frames
        self.is_answer = is_answer
        self.pieces: Deque[Tuple[float, memoryview]] = collections.deque()


class Relay:
    """A server that passes all bytes on to `target`, and back, each after `delay` seconds."""

    def __init__(self, target: str, delay: float = DELAY) -> None:
        self._delay = delay
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wake, self._closing = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._ways: List[Way] = []
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        # The windows of streams in the client's SETTINGS, the client's PINGs, and the connections.
        self.windows: List[int] = []
        self.pings = 0
        self.connections = 0
        # The bytes of messages that the client has got, and the most bytes that were under way to it at a time.
        self.came = 0
        self.most_under_way = 0
        # How often the server has sent GOAWAY.
        self.goaways = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._closing.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def complain(self) -> None:
        """Sends a GOAWAY in the server's place, before what the server sends next."""
        words = b"too_many_pings"
        start = (8 + len(words)).to_bytes(3, "big") + b"\7\0\0\0\0\0"
        frame = start + (2**31 - 1).to_bytes(4, "big") + (11).to_bytes(4, "big") + words
        [answers] = [way for way in self._ways if way.is_answer]
        answers.pieces.append((0.0, memoryview(frame)))

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection((self._host, self._port))
        self.connections += 1
        for source, target, is_answer in ((client, server, False), (server, client, True)):
            source.setblocking(False)
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            way = Way(source, target, Frames(0 if is_answer else 24), is_answer)
            self._ways.append(way)
            self._selector.register(source, selectors.EVENT_READ, way)

    def _read(self, way: Way) -> None:
        try:
            data = way.source.recv(MIB)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(way.source)
        way.pieces.append((time.monotonic() + self._delay, memoryview(data)))
        if way.is_answer:
            self.most_under_way = max(self.most_under_way, sum(len(piece) for _, piece in way.pieces))
            self.goaways += sum(kind == 7 for kind, _, _ in way.frames.read(data))
            return
        for kind, flags, content in way.frames.read(data):
            if kind == 4 and not flags & 1:
                entries = [content[at : at + 6] for at in range(0, len(content), 6)]
                self.windows += [int.from_bytes(entry[2:], "big") for entry in entries if entry[:2] == b"\0\4"]
            self.pings += kind == 6 and not flags & 1

    def _write(self, way: Way) -> Optional[float]:
        """Sends what is due. Returns the time until more is due; None: there is nothing left."""
        while way.pieces:
            due, data = way.pieces[0]
            left = due - time.monotonic()
            if left > 0:
                return left
            try:
                if not data:
                    way.target.shutdown(socket.SHUT_WR)
                sent = way.target.send(data) if data else 0
            except BlockingIOError:
                return 0.001
            except OSError:
                way.pieces.clear()
                return None
            self.came += sent if way.is_answer else 0
            if sent < len(data):
                way.pieces[0] = due, data[sent:]
            else:
                way.pieces.popleft()
        return None

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        while True:
            waits = [left for way in self._ways if (left := self._write(way)) is not None]
            ready = [key for key, _ in self._selector.select(min(waits, default=None))]
            if any(key.fileobj is self._wake for key in ready):
                break
            for key in ready:
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
        for each in (self._selector, self._listener, self._wake, *(way.source for way in self._ways)):
            each.close()


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """The target of a running `SERVER`."""
    command = [SERVER_PYTHON, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()
        process.wait(20)


@pytest.fixture
def relay(strict: str) -> Iterator[Relay]:
    opened = Relay(strict)
    yield opened
    opened.close()


def channel_to(target: str, **options: Any) -> Channel:
    return Channel(target, tls=False, options=options)


def take(channel: Channel, count: int) -> None:
    """Takes a stream of `count` messages of 64 KiB as fast as possible."""
    messages = channel.unary_stream("/a.B/Stream")(str(count).encode(), timeout=PATIENCE)
    assert sum(len(message) for message in messages) == count * SIZE


def take_until(channel: Channel, relay: Relay, size: int) -> int:
    """Takes streams until the windows have this size: a busy machine may need several. Returns how many."""
    deadline = time.monotonic() + PATIENCE
    streams = 0
    while not relay.windows or relay.windows[-1] < size:
        assert time.monotonic() < deadline
        take(channel, 160)
        streams += 1
    return streams


def test_windows_grow_for_a_long_path(relay: Relay) -> None:
    with channel_to(relay.target) as channel:
        streams = take_until(channel, relay, 2 * MIB)
        assert relay.windows[0] == MIB
        assert relay.windows[1:] == sorted(relay.windows[1:])
        assert relay.windows[-1] <= 32 * MIB
        for _ in range(3):
            take(channel, 320)
    assert relay.most_under_way < 33 * MIB
    assert 1 <= relay.pings <= 10 + 4 * streams
    # The server has found no PING too many.
    assert (relay.connections, relay.goaways) == (1, 0)


@pytest.mark.parametrize("options", [{"max_window_bytes": 0}, {"max_window_bytes": MIB}])
def test_windows_that_may_not_grow(relay: Relay, options: Dict[str, int]) -> None:
    with channel_to(relay.target, **options) as channel:
        take(channel, 160)
    assert (relay.windows, relay.pings) == ([MIB], 0)
    # The messages have prefixes, and frames have headers.
    assert relay.most_under_way < MIB * 1.1


def test_a_slow_reader_keeps_one_window(relay: Relay) -> None:
    with channel_to(relay.target) as channel:
        call = channel.unary_stream("/a.B/Stream")(b"100000", timeout=PATIENCE)
        taken = 0
        # 64 KiB in each round trip.
        for _ in range(40):
            time.sleep(2 * DELAY)
            taken += len(next(call))
            assert relay.came - taken < MIB * 1.1
        call.cancel()
    assert relay.windows == [MIB]
    assert relay.goaways == 0


def test_a_reader_that_stops_keeps_what_the_option_allows(relay: Relay) -> None:
    with channel_to(relay.target, max_window_bytes=4 * MIB) as channel:
        take_until(channel, relay, 4 * MIB)
        assert relay.windows[-1] == 4 * MIB
        start = relay.came
        call = channel.unary_stream("/a.B/Stream")(b"100000", timeout=PATIENCE)
        next(call)
        before, deadline = -1, time.monotonic() + PATIENCE
        # The server goes on until the window is full. Each echo takes a round trip.
        while relay.came > before:
            assert time.monotonic() < deadline
            before = relay.came + 1024
            for _ in range(3):
                assert channel.unary_unary("/a.B/Echo")(b"you", timeout=PATIENCE) == b"you"
        assert 3 * MIB < relay.came - start < 4 * MIB * 1.1 + 2 * SIZE
        call.cancel()


def test_a_server_that_complains_gets_no_more_pings(relay: Relay) -> None:
    with channel_to(relay.target) as channel:
        take_until(channel, relay, 2 * MIB)
        # A PING that is under way has arrived before the answer of this call.
        assert channel.unary_unary("/a.B/Echo")(b"you", timeout=PATIENCE) == b"you"
        pings, windows = relay.pings, relay.windows.copy()
        relay.complain()
        assert channel.unary_unary("/a.B/Echo")(b"you", timeout=PATIENCE) == b"you"
        take(channel, 320)
    assert relay.connections == 2
    assert (relay.pings, relay.windows) == (pings, [*windows, MIB])


def test_few_pings_near_by(strict: str) -> None:
    relay = Relay(strict, 0)
    try:
        with channel_to(relay.target) as channel:
            for _ in range(10):
                take(channel, 160)
        # 100 MiB have come.
        assert 1 <= relay.pings <= 20
        assert (relay.connections, relay.goaways) == (1, 0)
    finally:
        relay.close()
