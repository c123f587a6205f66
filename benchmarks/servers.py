"""The common servers: penstock-peer and grpc++'s asynchronous one, each in cleartext and over TLS."""

import os
import pathlib

import harness

# The window of each stream; grpc++'s server has the same. With a larger window a client that sends faster than it
# reads echoes would make penstock-peer buffer more data than fits any cache, and the measurement would show that.
WINDOW = 4 << 20
LONGEST = 1 << 30


class Server:
    """The process of a server, and its CPU time."""

    def __init__(self, process):
        self.process = process
        self.target = process.address

    def cpu(self):
        """The CPU seconds that all threads of the server have used so far."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.process.popen.pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # The thread has just ended.
        return total / 1e9

    def run_on(self, cores):
        """Lets all threads of the server run on these processor cores only."""
        for task in pathlib.Path(f"/proc/{self.process.popen.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


class Servers:
    """The servers. Each is started when `get` first asks for it; `end` ends all."""

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
