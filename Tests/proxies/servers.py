"""Servers and proxies that are processes of their own: ports, begin, end, begin again."""

import contextlib
import pathlib
import socket
import sys
import time

from harness import ROOT, Failure, Process, check

HERE = ROOT / "Tests" / "proxies"


class Port:
    """A port of 127.0.0.1 that the kernel has picked. It stays ours while a server that has it is away: a bound socket that does
    not listen keeps it, and lets a server that sets SO_REUSEADDR or SO_REUSEPORT have it, too."""

    def __init__(self):
        self.holder = socket.socket()
        self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.holder.bind(("127.0.0.1", 0))
        self.number = self.holder.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"

    def wait(self, process=None):
        """Waits until something listens."""
        until = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.number), 5):
                return
            check(time.monotonic() < until, "nothing listens on", self.address)
            if process and process.popen.poll() is not None:
                raise Failure(f"{process.name} has ended: {process.rest()[-5:]}")
            time.sleep(0.01)


def children(process):
    """The ids of the processes that it has started."""
    pid = process.popen.pid
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_gone(pids, limit=20):
    until = time.monotonic() + limit
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
        check(time.monotonic() < until, "these processes go on:", pids)
        time.sleep(0.01)


class Server:
    """A server.py on a port of its own, which can end and begin again."""

    def __init__(self, *options):
        self.port = Port()
        self.address = self.port.address
        self.options = options
        self.calls = []
        self.process = None
        self.begin()

    def begin(self):
        command = [sys.executable, HERE / "server.py", "--listen", self.address, *self.options]
        self.process = Process(command)
        self.process.told(address=...)

    def end(self, gently=False):
        """Ends it: with GOAWAY, and calls in flight go on, or at once, without a word."""
        if gently:
            self.process.say("stop")
            self.process.wait(20)
        else:
            self.process.popen.kill()
            self.process.popen.wait(20)
        self.note()
        self.process.end()

    def do(self, command):
        """Gives it a command, and waits until it is done."""
        self.process.say(command)
        self.process.line(lambda line: line == command)

    def peers(self):
        self.process.say("peers")
        return self.process.told(peers=...)["peers"]

    def note(self):
        self.calls += [line[5:] for line in self.process.rest() if line.startswith("call ")]

    def seen(self):
        """The numbers of the calls that have reached it so far."""
        if self.process.popen.poll() is not None:
            return self.calls
        self.do("so far")
        return self.calls + [line[5:] for line in self.process.seen if line.startswith("call ")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.end()
        self.port.holder.close()
