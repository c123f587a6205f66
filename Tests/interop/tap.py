"""A tap in front of a cleartext gRPC server: passes every byte on and follows the gRPC messages in the DATA frames.

It needs no HPACK: streams are known by number, and a message by its five-byte prefix (gRPC over HTTP2,
"Length-Prefixed-Message").
"""

import asyncio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA = 0
PADDED = 0x8


class Flags:
    """The compressed flags and lengths of one stream's messages in one direction, as they pass."""

    def __init__(self):
        self.messages = []
        self.asked = 0
        self.buffer = bytearray()
        self.missing = 0

    def feed(self, data):
        self.buffer += data
        while True:
            if self.missing:
                used = min(self.missing, len(self.buffer))
                del self.buffer[:used]
                self.missing -= used
                if self.missing:
                    return
            if len(self.buffer) < 5:
                return
            self.missing = int.from_bytes(self.buffer[1:5], "big")
            self.messages.append((self.buffer[0], self.missing))
            del self.buffer[:5]

    async def next(self):
        """The compressed flag of the next message in order. The server has that message already, so it has passed the
        tap."""
        self.asked += 1
        return self.messages[self.asked - 1][0] != 0


class Direction:
    """Cuts one direction of a connection into frames."""

    def __init__(self, opened=None):
        """`opened` is called with each new stream. Only the direction from the client has it; that direction begins
        with the preface."""
        self.opened = opened
        self.skip = len(PREFACE) if opened else 0
        self.buffer = bytearray()
        self.streams = {}

    def feed(self, data):
        self.buffer += data
        if self.skip:
            used = min(self.skip, len(self.buffer))
            del self.buffer[:used]
            self.skip -= used
        while len(self.buffer) >= 9:
            length = int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < 9 + length:
                return
            kind, flags = self.buffer[3], self.buffer[4]
            stream = int.from_bytes(self.buffer[5:9], "big") & 0x7FFFFFFF
            if stream:
                if self.opened and stream not in self.streams:
                    self.opened(stream)
                follower = self.streams.setdefault(stream, Flags())
                if kind == DATA:
                    payload = self.buffer[9:9 + length]
                    if flags & PADDED:
                        payload = payload[1:len(payload) - payload[0]]
                    follower.feed(payload)
            del self.buffer[:9 + length]


class Watch:
    """Listens in front of a server, and knows the stream that was opened last. For clients that make one call at a
    time."""

    def __init__(self):
        self.latest = None

    async def listen(self, upstream):
        self.host, port = upstream.rsplit(":", 1)
        self.port = int(port)
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def newest(self):
        above, _, stream = self.latest
        return above.streams[stream]

    def newest_answer(self):
        _, below, stream = self.latest
        return below.streams[stream]

    async def serve(self, reader, writer):
        below = Direction()

        def opened(stream):
            self.latest = (above, below, stream)

        above = Direction(opened)
        up_reader, up_writer = await asyncio.open_connection(self.host, self.port)
        await asyncio.gather(self.pump(reader, up_writer, above), self.pump(up_reader, writer, below))

    @staticmethod
    async def pump(reader, writer, direction):
        try:
            while data := await reader.read(65536):
                direction.feed(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
