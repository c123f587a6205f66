"""A peer that closes each connection behind its first answer, and clients that call it again and again.

    closing.py peer                             prints {"address": ...}, and {"closed": TIME} for each connection
    closing.py penstock|grpcio ADDRESS COUNT    makes COUNT calls, one after the other, for each pause of PAUSES between them;
                                                prints {"pause": ..., "calls": [[began, whether it has succeeded], ...]} for each

Times are those of CLOCK_MONOTONIC in nanoseconds.
"""

import json
import socket
import sys
import time

PAUSES = (0, 0.0001, 0.0003, 0.001, 0.002)
END_STREAM, ACK, HEADERS = 0x1, 0x1, 0x1


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    """A header field that is not indexed (RFC 7541, 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(connection):
    """Waits for the end of the first request, and returns its stream."""
    data = b""
    at = 24
    while True:
        while len(data) >= at + 9 and len(data) >= at + 9 + int.from_bytes(data[at:at + 3], "big"):
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5:at + 9], "big")
            at += 9 + int.from_bytes(data[at:at + 3], "big")
            if kind == 0x4 and not flags & ACK:
                connection.sendall(frame(0x4, ACK, 0))
            if kind in (0x0, HEADERS) and flags & END_STREAM:
                return stream
        more = connection.recv(65536)
        if not more:
            return None
        data += more


def peer():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(json.dumps({"address": f"127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    while True:
        connection, _ = listener.accept()
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(frame(0x4, 0, 0))
            stream = request(connection)
            if stream is None:
                continue
            connection.sendall(
                frame(HEADERS, 0x4, stream, b"\x88" + literal(b"content-type", b"application/grpc")) +
                frame(0x0, 0, stream, b"\0\0\0\0\4pong") +
                frame(HEADERS, 0x4 | END_STREAM, stream, literal(b"grpc-status", b"0")))
        except OSError:
            pass
        finally:
            connection.close()
        print(json.dumps({"closed": time.monotonic_ns()}), flush=True)


def method(which, address):
    """A method without its channel, which lives as long as the program, and the class of its errors."""
    if which == "grpcio":
        import grpc
        return grpc.insecure_channel(address).unary_unary("/proxies.Calls/Unary"), grpc.RpcError
    from load import penstock
    return penstock.Channel(address, tls=False).unary_unary("/proxies.Calls/Unary"), penstock.RpcError


def calls(which, address, count):
    call, error = method(which, address)
    for pause in PAUSES:
        told = []
        for _ in range(count):
            began = time.monotonic_ns()
            try:
                call(b"ping", timeout=20)
                told.append((began, True))
            except error:
                told.append((began, False))
            if pause:
                time.sleep(pause)
        print(json.dumps({"pause": pause, "calls": told}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        peer()
    else:
        calls(sys.argv[1], sys.argv[2], int(sys.argv[3]))
