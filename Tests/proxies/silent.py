"""A TCP proxy that cuts or forgets connections, and a port that answers no connection."""

import contextlib
import selectors
import socket
import struct
import threading


class Link:
    """Passes bytes on between its clients and `server`."""

    def __init__(self, server):
        self.server = server
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.other = {}
        self.forgotten = []
        self.accepted = 0
        self.lock = threading.Lock()
        self.waker, self.sleeper = socket.socketpair()
        self.selector.register(self.sleeper, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            for key, _ in self.selector.select():
                with self.lock:
                    if key.fileobj is self.sleeper:
                        return
                    if key.fileobj is self.listener:
                        self.accept()
                    elif key.fileobj in self.other:
                        self.pass_on(key.fileobj)

    def accept(self):
        client, _ = self.listener.accept()
        self.accepted += 1
        host, port = self.server.rsplit(":", 1)
        try:
            server = socket.create_connection((host, int(port)), 20)
        except OSError:
            return client.close()
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.other[one] = other
            self.selector.register(one, selectors.EVENT_READ)

    def pass_on(self, one):
        data = b""
        with contextlib.suppress(OSError):
            data = one.recv(65536)
            if data:
                self.other[one].sendall(data)
        if not data:
            self.drop(one)

    def drop(self, one):
        for end in (one, self.other[one]):
            del self.other[end]
            self.selector.unregister(end)
            end.close()

    def cut(self, reset=False):
        """Ends all present connections, with a FIN or (`reset`) an RST."""
        with self.lock:
            for one in list(self.other):
                if one in self.other:
                    if reset:
                        for end in (one, self.other[one]):
                            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.drop(one)

    def forget(self):
        """Forgets all present connections: they stay open, and nothing passes on them any more. A firewall or a load balancer
        that has dropped its entry for a connection has the same effect."""
        with self.lock:
            # The client has given up the connections that were forgotten before.
            for one in self.forgotten:
                one.close()
            self.forgotten = list(self.other)
            for one in self.other:
                self.selector.unregister(one)
            self.other = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.waker.send(b"x")
        self.thread.join(20)
        for one in (*self.other, *self.forgotten, self.listener, self.waker, self.sleeper):
            one.close()


class Refusing:
    """A port at which every connection is counted, and reset as soon as it is made. A closed port could not count
    connections."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.accepted = 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.accepted += 1
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(20)
        self.listener.close()
