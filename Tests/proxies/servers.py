"""Servers and proxies in processes of their own, with a port that they keep when they end and begin again."""

import contextlib
import pathlib
import socket
import sys

from harness import ROOT, Failure, Process, wait_for

HERE = ROOT / "Tests" / "proxies"


class Port:
    """A port of 127.0.0.1 that the kernel has picked. No other program gets it while its server is away: a bound socket that
    does not listen reserves it, and lets a server that sets SO_REUSEADDR or SO_REUSEPORT use it, too."""

    def __init__(self):
        self.holder = socket.socket()
        self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.holder.bind(("127.0.0.1", 0))
        self.number = self.holder.getsockname()[1]
        self.address = f"127.0.0.1:{self.number}"

    def wait(self, process=None):
        """Waits until a server listens at the port."""
        def listens():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.number), 5):
                return True
            if process and process.popen.poll() is not None:
                raise Failure(f"{process.name} has ended: {process.rest()[-5:]}")
            return False

        wait_for(listens, "a server listens on", self.address)


def children(process):
    """The ids of the processes that `process` has started."""
    pid = process.popen.pid
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_gone(pids):
    wait_for(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), "these processes end:", pids)


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
        """Ends the server: with `gently` by GOAWAY, so that calls in flight go on; otherwise at once, without GOAWAY."""
        if gently:
            self.process.say("stop")
            self.process.wait(20)
        else:
            self.process.popen.kill()
            self.process.popen.wait(20)
        self.note()
        self.process.end()

    def do(self, command):
        """Gives the server a command, and waits until the command is done."""
        self.process.say(command)
        self.process.line(lambda line: line == command)

    def peers(self):
        self.process.say("peers")
        return self.process.told(peers=...)["peers"]

    def note(self):
        self.calls += [line[5:] for line in self.process.rest() if line.startswith("call ")]

    def seen(self):
        """The numbers of the calls that have reached the server so far."""
        if self.process.popen.poll() is not None:
            return self.calls
        self.do("so far")
        return self.calls + [line[5:] for line in self.process.seen if line.startswith("call ")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.end()
        self.port.holder.close()
