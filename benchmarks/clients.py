"""The measuring programs: the command of each for a measurement, and how its output is read.

`penstock` is bench_client, a C program through the public header; `grpc++`, `grpcio`, `grpc-swift-2` and `penstock, Swift` are
programs with its options and its line of JSON. All of them check each reply byte by byte. `h2load` (nghttp2's own load
generator, C) knows nothing of gRPC: it sends a prepared request, counts bytes and reads no message, so it shows what HTTP/2
alone costs. `bare` has no HTTP/2 library either: it writes prepared frames to the same server (`bare frames`), or to a server
that is as simple as itself (`bare sockets`). So it shows how fast any client could be with that server and the kernel. Each
program has one connection.
"""

import array
import dataclasses
import functools
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

import build_peers
import harness
from harness import ROOT

HERE = ROOT / "benchmarks"
BUILT = ROOT / "build" / "bench"
SPIN_US = 50
# The memory that a call in flight takes in bench_client, by its peak RSS with 10,000 calls in flight and with 100.
CALL_BYTES = 2400
LIMIT = 90  # seconds of one measurement, before it counts as hung


class Unavailable(Exception):
    """The client can't make this measurement, or is not installed."""


def build_client():
    sources = [HERE / f"bench_{part}.c" for part in ("client", "unary", "streams", "idle")]
    return harness.build_c("bench_client", sources, includes=[HERE], optimize="-O2")


def peers(quick):
    """The programs of build_peers.py that could be built, by name. A quick run leaves out those in Swift, which take minutes
    to build."""
    names = [name for name in build_peers.PROGRAMS if not quick or "swift" not in name]
    return {name: path for name, path in build_peers.build(names).items() if path}


class Child:
    """A run of a program, with its output, its CPU seconds and its peak memory."""

    def __init__(self, command, watches_memory=False, **environment):
        command = [str(part) for part in command]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(harness.LIBRARY), **environment}
        self.peak_kb = 0
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            limit = threading.Timer(LIMIT, process.kill)
            limit.start()
            while True:
                found, status, usage = os.wait4(process.pid, os.WNOHANG if watches_memory else 0)
                if found:
                    break
                self.peak_kb = max(self.peak_kb, self.resident(process.pid))
                time.sleep(0.02)
            process.returncode = os.waitstatus_to_exitcode(status)
            limit.cancel()
            output.seek(0)
            self.output = output.read()
        self.cpu = usage.ru_utime + usage.ru_stime
        if process.returncode != 0:
            said = self.output.strip().split("\n")[-1][-300:]
            raise harness.Failure(f"{pathlib.Path(command[0]).name} {process.returncode}: {said}")

    @staticmethod
    def resident(process):
        """The peak resident memory of `process`: VmHWM, because ru_maxrss includes the memory that the parent had at the
        fork."""
        try:
            status = pathlib.Path(f"/proc/{process}/status").read_text()
        except OSError:
            return 0
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found.group(1)) if found else 0


def percentiles(times, key=""):
    times = sorted(times)
    return {f"{key}p50_us": times[len(times) // 2], f"{key}p99_us": times[int((len(times) - 1) * 0.99)]}


@functools.cache
def clock():
    return build_peers.build(["cycle.so"])["cycle.so"]


def cycles(command, calls):
    """The times from the write of one request to the write of the next, by the clock in cycle.c. They are measured in a
    further run of `command`."""
    if not clock():
        return {}
    with tempfile.NamedTemporaryFile() as file:
        Child(command, LD_PRELOAD=str(clock()), CYCLE_FILE=file.name)
        times = array.array("d", file.read())
    harness.check(abs(len(times) - calls) <= 20 + calls * 0.02, f"{len(times)} writes of {calls} requests")
    return percentiles(times, "cycle_")


class Program:
    """A program with bench_client's options and JSON. `cycles`: if calls are made one after the other, the times between
    the writes of requests are measured, too."""

    def __init__(self, command, *more, styles=None, cycles=False):
        self.command = command
        self.more = more
        self.styles = styles or {}
        self.cycles = cycles

    def command_for(self, case, target, calls, authority):
        """The command that measures `calls` calls or messages of `case` against `target`, and the number of calls that it
        makes, its warm-up included."""
        style = self.styles.get("many" if case.in_flight > 1 else "one", ())
        command = [*self.command, "--target", target, "--what", case.what, "--calls", calls, "--in-flight", case.in_flight,
                   "--bytes", case.bytes, *style, *self.more]
        if case.threads > 1:
            command += ["--threads", case.threads]
        if case.tls:
            command += ["--tls", authority]
        return command, calls + calls // 10 + 1

    def measure(self, case, target, calls, authority, memory=False):
        command, served = self.command_for(case, target, calls, authority)
        child = Child(command, memory)
        told = json.loads(child.output.strip().split("\n")[-1])
        if memory:
            told["max_rss_kb"] = child.peak_kb
        if self.cycles and case.alone:
            command, again = self.command_for(case, target, calls, authority)
            told.update(cycles(command, again))
            served += again
        return {"cpu": told.get("user", 0) + told.get("system", 0), "served": served, **told}


class H2load:
    methods = {"unary": "Unary", "up": "ClientStream", "down": "ServerStream", "duplex": "Bidi"}

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.starts = {}

    @staticmethod
    def messages(size):
        """The number of messages in one stream. The reply of a stream up is that number in digits; it is a power of ten,
        so that a lost message makes the reply shorter, which h2load's count of bytes shows."""
        return 10_000 if size <= 1024 else 1000 if size <= 65536 else 100

    def body(self, case):
        """Writes the request's body to a file. Gives the path of the file, and the length that the response must have."""
        message = b"\0" + struct.pack(">I", case.bytes) + bytes(i * 131 & 255 for i in range(case.bytes))
        count = self.messages(case.bytes)
        times = count if case.what in ("up", "duplex") else 1
        path = self.folder / f"{case.bytes}-{times}"
        if not path.exists():
            path.write_bytes(message * times)
        answer = {"unary": len(message), "up": 5 + len(str(count))}.get(case.what, count * len(message))
        return path, answer

    def command(self, case, target, requests, *more):
        body, _ = self.body(case)
        header = {"up": ["-H", "x-mode: count"], "down": ["-H", f"x-repeat: {self.messages(case.bytes)}"]}.get(case.what, [])
        # The windows are penstock's defaults (2**20 and 2**22 bytes). With 2**30 the server would fill them with more data
        # than fits any cache, and h2load would have half the rate. The other clients have AES-256-GCM, OpenSSL's preference.
        return ["h2load", "-n", requests, "-c", 1, "-m", min(case.in_flight, requests), "-w", 20, "-W", 22, "-d", body,
                "-H", "content-type: application/grpc", "-H", "te: trailers", *header,
                "--tls13-ciphers=TLS_AES_256_GCM_SHA384", *more,
                f"{'https' if case.tls else 'http'}://{target}/penstock.Echo/{self.methods[case.what]}"]

    def requests(self, case, calls):
        """The number of requests, and of messages in each."""
        if case.what not in self.methods or case.threads > 1:
            raise Unavailable(f"h2load has no {case.what}")
        each = 1 if case.what == "unary" else self.messages(case.bytes)
        return max(round(calls / each), 1), each

    def command_for(self, case, target, calls, authority):
        del authority  # h2load verifies no certificate.
        requests, each = self.requests(case, calls)
        return self.command(case, target, requests), requests * each

    def run(self, case, target, requests, memory, *more):
        _, answer = self.body(case)
        child = Child(self.command(case, target, requests, *more), memory)
        succeeded = int(re.search(r"(\d+) succeeded", child.output).group(1))
        data = int(re.search(r"\((\d+)\) data", child.output).group(1))
        harness.check(succeeded == requests and data == requests * answer,
                      f"h2load: wrong replies: {succeeded} of {requests}, {data} bytes of {requests * answer}")
        return child, requests / float(re.search(r"([\d.]+) req/s", child.output).group(1))

    def start_cpu(self, case, target):
        """The CPU seconds of a run with one request. They stand for h2load's start, which is subtracted, because the other
        clients do not count theirs."""
        if target not in self.starts:
            one = dataclasses.replace(case, what="unary", in_flight=1, bytes=64)
            self.starts[target] = statistics.median(self.run(one, target, 1, False)[0].cpu for _ in range(3))
        return self.starts[target]

    def measure(self, case, target, calls, authority, memory=False):
        del authority
        requests, each = self.requests(case, calls)
        start = self.start_cpu(case, target)
        child, seconds = self.run(case, target, requests, memory)
        told = {"calls": requests * each, "seconds": seconds, "cpu": max(child.cpu - start, 0),
                "max_rss_kb": child.peak_kb, "served": requests * each}
        if case.alone:
            again = max(requests // 2, 1)
            told.update(self.own_latencies(case, target, again))
            told.update(cycles(self.command(case, target, requests), requests))
            told["served"] += requests + again
        return told

    def own_latencies(self, case, target, requests):
        """h2load's own latencies. They are measured in a further run, because its log takes a system call for each
        request."""
        log = self.folder / "h2load.log"
        log.unlink(missing_ok=True)
        self.run(case, target, requests, False, f"--log-file={log}")
        # The log has whole microseconds, rounded down, which takes away half a microsecond on average.
        return percentiles(int(line.split("\t")[2]) + 0.5 for line in log.read_text().split("\n") if line)


def clients(folder, programs):
    """The clients that can be run here, by name; and for each other one the reason why not."""
    own = build_client()
    found = {
        "penstock": Program([own], cycles=True),
        "penstock, callbacks": Program([own], "--style", "callback"),
        "penstock, no copy": Program([own], "--copy", 0),
        "penstock, spin": Program([own], "--spin", SPIN_US, cycles=True),
        "penstock, 64 MiB windows": Program([own], "--max-window", 1 << 26),
        "penstock, fixed windows": Program([own], "--max-window", 0),
        "penstock, 8 interceptors": Program([own], "--interceptors", 8),
    }
    missing = {}
    folder = pathlib.Path(folder)
    if "bare" in programs:
        bare = [programs["bare"]]
        pair = ("--server", "own", "--cert", folder / "server.pem", "--key", folder / "server.key")
        found.update({
            "bare frames": Program(bare),
            "bare frames, blocking read": Program(bare, "--style", "blocking"),
            "bare frames, copied": Program(bare, "--copy", 1),
            "bare frames, 2.4 kB a call": Program(bare, "--touch", CALL_BYTES),
            "bare sockets": Program(bare, *pair),
            "bare sockets, blocking read": Program(bare, *pair, "--style", "blocking"),
        })
    else:
        missing["bare"] = f"there is no {(BUILT / 'bare').relative_to(ROOT)}"
    if harness.shutil.which("h2load"):
        found["h2load"] = H2load(folder)
    else:
        missing["h2load"] = "not installed (Debian: nghttp2-client)"
    for name, program, *more in (("grpc++", "grpcpp_client"), ("grpc-swift-2", "grpc-swift-client"),
                                 ("grpc-swift-2 over penstock", "grpc-swift-client", "--transport", "penstock"),
                                 ("penstock, Swift", "penstock-swift-client")):
        if program in programs:
            found[name] = Program([programs[program]], *more, cycles=name == "grpc++")
        else:
            missing[name] = f"there is no {(BUILT / program).relative_to(ROOT)}"
    try:
        import grpc
        found["grpcio"] = Program([sys.executable, HERE / "grpcio_client.py"],
                                  styles={"one": ("--style", "blocking"), "many": ("--style", "asyncio")})
        found["grpcio"].version = grpc.__version__
    except ImportError:
        missing["grpcio"] = "not installed (scripts/setup-tests)"
    return found, missing
