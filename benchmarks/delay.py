"""A relay to a server that passes all bytes on after a delay, in both directions, as a long network path does.

    delay.py SERVER MILLISECONDS

Prints {"address": ...} when it listens. The relay goes on reading while bytes are delayed, so it does not limit the rate.
"""

import collections
import json
import selectors
import socket
import sys
import time


class Way:
    """One direction of a connection."""

    def __init__(self, source, target):
        self.source = source
        self.target = target
        # The time at which each piece is due, and its bytes; empty: the end.
        self.pieces = collections.deque()

    def read(self, delay):
        """Reads the bytes that have come, which are due after `delay`. False: the source has ended."""
        try:
            data = self.source.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self.pieces.append((time.monotonic() + delay, memoryview(data)))
        return bool(data)

    def write(self):
        """Sends the pieces that are due. Returns the time until the next piece is due; None: no piece is left."""
        while self.pieces:
            due, data = self.pieces[0]
            left = due - time.monotonic()
            if left > 0:
                return left
            try:
                if not data:
                    self.target.shutdown(socket.SHUT_WR)
                sent = self.target.send(data) if data else 0
            except BlockingIOError:
                return 0.001
            except OSError:
                self.pieces.clear()
                return None
            if sent < len(data):
                self.pieces[0] = due, data[sent:]
            else:
                self.pieces.popleft()
        return None


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    delay = float(sys.argv[2]) / 1000
    listener = socket.create_server(("127.0.0.1", 0))
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    ways = []
    print(json.dumps({"address": f"127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    while True:
        waits = [left for way in ways if (left := way.write()) is not None]
        for key, _ in selector.select(min(waits, default=None)):
            if key.data:
                if not key.data.read(delay):
                    selector.unregister(key.fileobj)
                continue
            client, _ = listener.accept()
            server = socket.create_connection((host, int(port)))
            for source, target in ((client, server), (server, client)):
                source.setblocking(False)
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ways.append(Way(source, target))
                selector.register(source, selectors.EVENT_READ, ways[-1])


if __name__ == "__main__":
    main()
