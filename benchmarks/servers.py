"""The common servers: penstock-peer and grpc++'s asynchronous one, each in cleartext and over TLS."""

import os
import pathlib

import harness

# As grpc++'s server has it. Without a bound a client that runs ahead of the echoes fills the peer's memory: out of every
# cache, and that is what is measured then.
WINDOW = 4 << 20
LONGEST = 1 << 30


class Server:
    """One process, and what of a core it uses."""

    def __init__(self, process):
        self.process = process
        self.target = process.address

    def cpu(self):
        """CPU seconds of all its threads so far."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.process.popen.pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # It has just ended.
        return total / 1e9


class Servers:
    """Started when they are first wanted; one end for all."""

    def __init__(self, folder, programs):
        self.certificates = harness.Certificates(folder)
        self.authority = self.certificates.path("ca.pem")
        self.programs = programs
        self.running = {}

    def names(self):
        return ["penstock-peer", *(["grpc++ server"] if "grpcpp_server" in self.programs else [])]

    def get(self, name, tls=False):
        key = (name, tls)
        if key not in self.running:
            pair = [self.certificates.path("server.pem"), self.certificates.path("server.key")]
            if name == "penstock-peer":
                more = ["--tls", "--cert", pair[0], "--key", pair[1]] if tls else []
                process = harness.peer("--stream-window", str(WINDOW), "--max-message-bytes", str(LONGEST), *more)
            else:
                process = harness.Server([self.programs["grpcpp_server"], *(["--tls", *pair] if tls else [])])
            self.running[key] = Server(process)
        return self.running[key]

    def end(self):
        for server in self.running.values():
            server.process.end()
        self.running.clear()


def cores():
    return len(os.sched_getaffinity(0))
