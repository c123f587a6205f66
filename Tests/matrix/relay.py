"""A byte proxy in front of a gRPC server. The proxy follows HTTP/2's frames, so that it can cause a fault at an exact place.
It has two listeners for each fault, one in cleartext and one with TLS, and speaks cleartext to the server.

    relay.py SERVER FOLDER

FOLDER has the certificates. Prints {"FAULT": {"cleartext": PORT, "tls": PORT}, ...} when it listens, and ends when its
standard input ends."""

import asyncio
import json
import socket
import ssl
import struct
import sys

from faults import FAULTS

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM = 1
GARBAGE = bytes.fromhex("deadbeef00112233445566778899aabbccddeeff0123456789abcdef" + "5a" * 12)
HTTP1 = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
DELAY = 0.2


class Over(Exception):
    """Raised when the fault has ended the connection."""


class Connection:
    def __init__(self, fault, reader, writer, up):
        self.fault = fault
        self.client = (reader, writer)
        self.up = up
        self.counts = {}
        self.stalled = False
        # The streams that the fault has reset.
        self.reset_streams = set()
        # The bytes of a message that has not come whole yet, by direction and stream.
        self.parts = {}

    def count(self, *key):
        self.counts[key] = self.counts.get(key, 0) + 1
        return self.counts[key]

    def frames(self, goes_up, kind, flags, stream, payload):
        """The frames that the proxy passes on in place of a frame. DATA is divided again, so that each message has a frame of
        its own: on a busy machine the sender may have put several messages into one frame."""
        if kind != DATA:
            return [made(kind, stream, payload, flags)]
        rest, frames = self.parts.pop((goes_up, stream), b"") + payload, []
        while len(rest) >= 5 and len(rest) >= 5 + int.from_bytes(rest[1:5], "big"):
            size = 5 + int.from_bytes(rest[1:5], "big")
            frames.append(made(DATA, stream, rest[:size], flags & END_STREAM if size == len(rest) else 0))
            rest = rest[size:]
        if flags & END_STREAM:
            return frames if payload and not rest else [*frames, made(DATA, stream, rest, flags)]
        self.parts[goes_up, stream] = rest
        return frames

    def point(self, goes_up, kind, flags, stream, payload):
        """The name of the point in `POINTS` that a frame is, found by the earlier frames of its stream in the same
        direction; None: the frame is no such point."""
        if kind == SETTINGS and not flags & 1 and not goes_up:
            return "settings" if self.count("settings") == 1 else None
        if stream == 0 or kind not in (DATA, HEADERS) or (kind == DATA and not payload):
            return None
        number = self.count(goes_up, kind, stream) - 1
        points = {(True, HEADERS): ("request",), (True, DATA): ("message", "message2"),
                  (False, HEADERS): ("headers", "trailers"), (False, DATA): ("answer", "answer2")}[goes_up, kind]
        return points[number] if number < len(points) else None

    async def pump(self, reader, writer, goes_up):
        try:
            if goes_up:
                writer.write(await reader.readexactly(len(PREFACE)))
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
                if goes_up and kind == SETTINGS and payload:
                    # HEADER_TABLE_SIZE 0: the server then uses no HPACK table, so that a fault may leave out
                    # a header block.
                    payload += struct.pack(">HI", 1, 0)
                for frame in self.frames(goes_up, kind, flags, stream, payload):
                    await self.forward(frame, stream, goes_up, writer)
        except (asyncio.IncompleteReadError, OSError):
            raise Over from None

    async def forward(self, frame, stream, goes_up, writer):
        if self.stalled or stream in self.reset_streams:
            return
        point = self.point(goes_up, frame[3], frame[4], stream, frame[9:])
        if self.fault and point == self.fault.at:
            return await self.act(frame, stream, writer)
        writer.write(frame)
        await writer.drain()

    async def act(self, frame, stream, writer):
        """Carries out the fault at its frame."""
        fault, action = self.fault, self.fault.action
        if fault.once:
            self.fault = None
        if fault.where == "in" and action in ("cut", "stall"):
            writer.write(frame[: len(frame) // 2])
        elif fault.where == "in" and action == "rst-2":
            writer.write(self.part(frame))
        elif fault.where == "after":
            writer.write(frame)
        await writer.drain()
        if action == "cut":
            if fault.where == "after":
                # Waits until the bytes that were written before have arrived.
                await asyncio.sleep(DELAY)
            raise Over
        if action == "reset":
            self.reset()
            raise Over
        if action == "stall":
            self.stalled = True
        elif action == "delay":
            await asyncio.sleep(DELAY)
            writer.write(frame)
        elif action == "split":
            for index in range(len(frame)):
                writer.write(frame[index : index + 1])
                await writer.drain()
                await asyncio.sleep(0)
        elif action == "corrupt":
            writer.write(self.corrupted(frame))
        elif action == "length":
            writer.write(b"\xff\xff\xff" + frame[3:])
        elif action.startswith("rst-"):
            self.reset_streams.add(stream)
            writer.write(made(RST_STREAM, stream, struct.pack(">I", int(action[4:]))))
        elif action == "goaway-drops":
            writer.write(made(GOAWAY, 0, struct.pack(">II", 0, 0)))
            self.stalled = True
        elif action == "goaway-keeps":
            writer.write(made(GOAWAY, 0, struct.pack(">II", 2**31 - 1, 0)) + frame)
        await writer.drain()

    @staticmethod
    def part(frame):
        """A whole DATA frame with half of the message."""
        half = frame[9 : 9 + (len(frame) - 9) // 2]
        return made(DATA, int.from_bytes(frame[5:9], "big"), half)

    @staticmethod
    def corrupted(frame):
        stream = int.from_bytes(frame[5:9], "big")
        if frame[3] == SETTINGS:
            return made(DATA, 1, b"x")
        if frame[3] == HEADERS:
            # An index that is in neither of HPACK's tables.
            return made(HEADERS, stream, b"\xff\xff\xff\x7f", frame[4])
        return frame[:9] + b"\x05" + frame[10:]

    def reset(self):
        """Makes the close of the client's connection a reset."""
        raw = self.client[1].get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client[1].transport.abort()


def made(kind, stream, payload, flags=0):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


async def at_once(fault, reader, writer):
    """Carries out a fault of a connection on which the proxy speaks no HTTP/2."""
    if fault.action == "reset":
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return writer.transport.abort()
    if fault.at == "handshake":
        # Waits for the ClientHello.
        await reader.read(1)
    if fault.action in ("garbage", "http1"):
        await reader.read(1)
        writer.write(GARBAGE if fault.action == "garbage" else HTTP1)
    if fault.action in ("stall", "garbage"):
        while await reader.read(65536):
            pass
    writer.close()


async def relayed(fault, server, reader, writer, number):
    """Serves one connection through the proxy. A fault that happens once is only for the first connection."""
    host, port = server.rsplit(":", 1)
    up = await asyncio.open_connection(host, int(port))
    connection = Connection(None if fault.once and number > 1 else fault, reader, writer, up)
    pumps = [asyncio.ensure_future(connection.pump(reader, up[1], True)),
             asyncio.ensure_future(connection.pump(up[0], writer, False))]
    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    for pump in pumps:
        pump.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)
    up[1].close()
    writer.close()


async def listen(fault, server, context):
    count = 0

    async def serve(reader, writer):
        nonlocal count
        count += 1
        try:
            if fault.at == "connect" or (fault.at == "handshake" and fault.where == "in"):
                await at_once(fault, reader, writer)
            else:
                await relayed(fault, server, reader, writer, count)
        except OSError:
            writer.close()

    plain = fault.at == "connect" or (fault.at == "handshake" and fault.where == "in")
    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=None if plain else context)
    return listener.sockets[0].getsockname()[1]


def context(folder, name):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(f"{folder}/{name}.pem", f"{folder}/{name}.key")
    made.set_alpn_protocols(["h2"])
    return made


async def main():
    server, folder = sys.argv[1:]
    ports = {}
    for fault in FAULTS:
        certificate = fault.action if fault.at == "handshake" and fault.where == "before" else "server"
        ports[fault.name] = {"cleartext": await listen(fault, server, None),
                             "tls": await listen(fault, server, context(folder, certificate))}
    print(json.dumps(ports), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
