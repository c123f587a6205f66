"""The measuring programs: how each is run for one measurement, and its output.

`penstock` is bench_client, a C program through the public header; `grpc++`, `grpcio` and `grpc-swift-2` are programs with
its options and its line of JSON. All of them check each reply byte by byte. `h2load` (nghttp2's own load generator, C) knows
nothing of gRPC: it sends a request that was made before, counts bytes and reads no message, so it stands for what HTTP/2
alone costs. `bare` is less than that: it writes frames that were made before to the same server (`bare frames`), or to one as
bare as it is (`bare sockets`), and tells what the server and the kernel leave to any client. Each has one connection.
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
# The memory of a call in flight here: peak RSS with 10,000 of them, less that with 100, of bench_client.
CALL_BYTES = 2400
LIMIT = 90  # seconds of one measurement, before it counts as hung


class Unavailable(Exception):
    """This client cannot do that here."""


def build_client():
    sources = [HERE / f"bench_{part}.c" for part in ("client", "unary", "streams", "idle")]
    return harness.build_c("bench_client", sources, includes=[HERE], optimize="-O2")


def peers(quick):
    """The programs of build_peers.py that are there, by name; a quick run does without what takes minutes to build."""
    names = [name for name in build_peers.PROGRAMS if not quick or name != "grpc-swift-client"]
    return {name: path for name, path in build_peers.build(names).items() if path}


class Child:
    """A program that has run: its output, its CPU seconds, the most memory it had."""

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
        """VmHWM. Not ru_maxrss, which begins with the memory that its parent had."""
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
    """From the write of one request to that of the next, by the clock in cycle.c, in a run of `command` of its own."""
    if not clock():
        return {}
    with tempfile.NamedTemporaryFile() as file:
        Child(command, LD_PRELOAD=str(clock()), CYCLE_FILE=file.name)
        times = array.array("d", file.read())
    harness.check(abs(len(times) - calls) <= 20 + calls * 0.02, f"{len(times)} writes of {calls} requests")
    return percentiles(times, "cycle_")


class Program:
    """One with bench_client's options and JSON. `cycles`: of a call alone the time between two writes is measured, too."""

    def __init__(self, command, *more, styles=None, cycles=False):
        self.command = command
        self.more = more
        self.styles = styles or {}
        self.cycles = cycles

    def command_for(self, case, target, calls, authority):
        """What measures `calls` calls or messages of `case` against `target`, and how many it makes with its warm-up."""
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
        """Of one stream. A power of ten: the reply of a stream up is its count of messages, so a shorter one shows."""
        return 10_000 if size <= 1024 else 1000 if size <= 65536 else 100

    def body(self, case):
        """The file that is sent, and how long the answer has to be."""
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
        # Windows as penstock's defaults: with 2**30 the server fills them, out of every cache, and h2load has half the rate.
        # AES-256-GCM is what OpenSSL prefers, and so what the others have.
        return ["h2load", "-n", requests, "-c", 1, "-m", min(case.in_flight, requests), "-w", 20, "-W", 22, "-d", body,
                "-H", "content-type: application/grpc", "-H", "te: trailers", *header,
                "--tls13-ciphers=TLS_AES_256_GCM_SHA384", *more,
                f"{'https' if case.tls else 'http'}://{target}/penstock.Echo/{self.methods[case.what]}"]

    def requests(self, case, calls):
        """How many, and messages in each."""
        if case.what not in self.methods or case.threads > 1:
            raise Unavailable(f"h2load has no {case.what}")
        each = 1 if case.what == "unary" else self.messages(case.bytes)
        return max(round(calls / each), 1), each

    def command_for(self, case, target, calls, authority):
        del authority  # It verifies no certificate.
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
        """CPU seconds of a run with one request: its start, which the other clients do not count."""
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
        """In a run of its own: its log costs it a system call for each request."""
        log = self.folder / "h2load.log"
        log.unlink(missing_ok=True)
        self.run(case, target, requests, False, f"--log-file={log}")
        # Its microseconds are cut off: half of one is what that takes away.
        return percentiles(int(line.split("\t")[2]) + 0.5 for line in log.read_text().split("\n") if line)


def clients(folder, programs):
    """All that are here, by name, and why the others are not."""
    own = build_client()
    found = {
        "penstock": Program([own], cycles=True),
        "penstock, callbacks": Program([own], "--style", "callback"),
        "penstock, no copy": Program([own], "--copy", 0),
        "penstock, spin": Program([own], "--spin", SPIN_US, cycles=True),
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
    for name, program in (("grpc++", "grpcpp_client"), ("grpc-swift-2", "grpc-swift-client")):
        if program in programs:
            found[name] = Program([programs[program]], cycles=name == "grpc++")
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
