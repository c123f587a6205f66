"""This library, h2load and grpcio against penstock-peer, by turns; `run` beside it starts it.

Prints a table of ratios and writes build/bench.json. Nothing here fails because of a time.

What is compared: `penstock` is a C program through the public header and checks each reply byte by byte; `h2load`
(nghttp2's own load generator, C) knows nothing of gRPC: it sends a request that was made before, counts bytes and
reads no message, so it stands for what HTTP/2 alone costs; `grpcio` is Python over gRPC's C core, and checks each
reply too. All three have one connection. The order within a round changes from round to round.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import resource
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import harness
from harness import ROOT

HERE = ROOT / "benchmarks"
KIB64 = 65536
UNARY_BYTES = 64
MESSAGES = 1024  # of one stream of h2load's
TICKS = os.sysconf("SC_CLK_TCK")
# As h2load's -w and -W 30: no window is ever in the way.
WIDE = 1 << 30


class Server:
    """penstock-peer, and what of a core it has used."""

    def __init__(self):
        self.process = harness.peer("--stream-window", str(WIDE), "--max-message-bytes", str(1 << 30))
        self.target = self.process.address

    def cpu(self):
        stat = pathlib.Path(f"/proc/{self.process.popen.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(stat[11]) + int(stat[12])) / TICKS


def children_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime, usage.ru_stime


class Bench:
    def __init__(self, folder):
        self.folder = folder
        self.server = Server()
        self.program = harness.build_c("bench_client", [HERE / "bench_client.c"], optimize="-O2")
        body = bytes(i * 131 & 255 for i in range(KIB64))
        message = b"\0" + struct.pack(">I", KIB64) + body
        self.bodies = {
            "unary": b"\0" + struct.pack(">I", UNARY_BYTES) + body[:UNARY_BYTES],
            "up": message * MESSAGES,
            "down": message,
        }
        for name, content in self.bodies.items():
            (folder / name).write_bytes(content)

    def environment(self):
        return {**os.environ, "LD_LIBRARY_PATH": str(harness.LIBRARY)}

    def output(self, command):
        done = subprocess.run([str(part) for part in command], env=self.environment(), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        harness.check(done.returncode == 0, f"{command}: {done.stdout[-2000:]}")
        return done.stdout

    # Each gives calls (or messages), seconds, and CPU seconds of the client.

    def own(self, command, what, calls, in_flight, style, size):
        told = json.loads(self.output([*command, "--target", self.server.target, "--what", what, "--calls", calls,
                                       "--in-flight", in_flight, "--bytes", size, "--style", style]))
        return told["calls"], told["seconds"], told["user"] + told["system"]

    def penstock(self, what, calls, in_flight, size, style="blocking"):
        return self.own([self.program], what, calls, in_flight, style, size)

    def grpcio(self, what, calls, in_flight, size):
        style = "asyncio" if in_flight > 1 else "blocking"
        return self.own([sys.executable, HERE / "grpcio_client.py"], what, calls, in_flight, style, size)

    def h2load(self, what, calls, in_flight, size):
        del size
        method, header, requests, answer = {
            "unary": ("Unary", (), calls, len(self.bodies["unary"])),
            "up": ("ClientStream", ("-H", "x-mode: count"), max(calls // MESSAGES, 1), 5 + len(str(MESSAGES))),
            "down": ("ServerStream", ("-H", f"x-repeat: {MESSAGES}"), max(calls // MESSAGES, 1),
                     MESSAGES * (5 + KIB64)),
        }[what]
        before = children_cpu()
        told = self.output(["h2load", "-n", requests, "-c", 1, "-m", in_flight, "-w", 30, "-W", 30, "-d",
                            self.folder / what, "-H", "content-type: application/grpc", "-H", "te: trailers", *header,
                            f"http://{self.server.target}/penstock.Echo/{method}"])
        after = children_cpu()
        took, unit = re.search(r"finished in ([\d.]+)(us|ms|s)\b", told).groups()
        succeeded = int(re.search(r"(\d+) succeeded", told).group(1))
        data = int(re.search(r"\((\d+)\) data", told).group(1))
        harness.check(succeeded == requests and data == requests * answer,
                      f"h2load: {succeeded} of {requests}, {data} bytes of {requests * answer}")
        seconds = float(took) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]
        return requests * (1 if what == "unary" else MESSAGES), seconds, sum(after) - sum(before)


# Name; what is measured; in flight; bytes; unit; the clients, each with the calls of about a second.
SCENARIOS = [
    ("unary, 1 in flight", "unary", 1, UNARY_BYTES, "calls/s", {
        "penstock": (30_000, {}), "h2load": (30_000, {}), "grpcio": (5_000, {})}),
    ("unary, 100 in flight", "unary", 100, UNARY_BYTES, "calls/s", {
        "penstock": (150_000, {"style": "callback"}), "h2load": (200_000, {}), "grpcio": (15_000, {})}),
    ("64 KiB stream up", "up", 1, KIB64, "MiB/s", {
        "penstock": (20_000, {}), "h2load": (20_480, {}), "grpcio": (10_000, {})}),
    ("64 KiB stream down", "down", 1, KIB64, "MiB/s", {
        "penstock": (20_000, {}),
        "penstock, callbacks": (20_000, {"style": "callback"}),
        "h2load": (20_480, {}), "grpcio": (10_000, {})}),
]


def one_round(bench, scenario, name, scale):
    _, what, in_flight, size, unit, clients = scenario
    calls, more = clients[name]
    run = getattr(bench, name.split(",")[0])
    server, started = bench.server.cpu(), time.monotonic()
    count, seconds, cpu = run(what, max(int(calls * scale), 10), in_flight, size, **more)
    busy = (bench.server.cpu() - server) / (time.monotonic() - started)
    rate = count / seconds * (size / (1 << 20) if unit == "MiB/s" else 1)
    return {"rate": rate, "cpu_us": cpu / count * 1e6, "server_busy": busy, "client_busy": cpu / seconds}


def summary(rounds):
    """The median of each figure, and the least and most of the rate."""
    rates = [one["rate"] for one in rounds]
    return {"median": statistics.median(rates), "min": min(rates), "max": max(rates), "rounds": rates,
            **{key: statistics.median(one[key] for one in rounds) for key in ("cpu_us", "server_busy", "client_busy")}}


def ratio(one, other):
    """The median of the ratios round by round: what is slow for a while is slow for both."""
    return statistics.median(a / b for a, b in zip(one["rounds"], other["rounds"], strict=True))


def shown(number):
    return f"{number:,.0f}"


def print_table(results):
    print(f"\n{'':<22}{'client':<26}{'median':>9}  {'min .. max':<20}{'':<9}{'CPU us':>8}{'client':>8}{'server':>8}"
          f"{'/h2load':>9}{'/grpcio':>9}")
    for title, result in results.items():
        for number, (name, figures) in enumerate(result["clients"].items()):
            span = f"{shown(figures['min'])} .. {shown(figures['max'])}"
            ratios = "".join(f"{ratio(figures, result['clients'][other]):>9.2f}" for other in ("h2load", "grpcio"))
            print(f"{title if number == 0 else '':<22}{name:<26}{shown(figures['median']):>9}  {span:<20}"
                  f"{result['unit']:<9}{figures['cpu_us']:>8.1f}{figures['client_busy']:>8.0%}"
                  f"{figures['server_busy']:>8.0%}{ratios}")
    print("\nCPU us: of the client, per call or message. client, server: how busy, of one core; a server near 100% is the"
          "\nlimit, and the ratio says less than it could. Ratios: medians of those of each round.")


def facts():
    def version(*command):
        return subprocess.run(command, text=True, stdout=subprocess.PIPE, check=False).stdout.split("\n")[0]

    import grpc

    header = (ROOT / "include" / "penstock" / "version.h").read_text()
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {
        "penstock": re.search(r'#define PENSTOCK_VERSION +"(.*)"', header).group(1),
        "h2load": version("h2load", "--version").removeprefix("h2load nghttp2/"),
        "grpcio": grpc.__version__,
        "kernel": platform.release(),
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="about how long each client runs in a round")
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()
    wanted = [scenario for scenario in SCENARIOS
              if not arguments.patterns or any(re.search(pattern, scenario[0]) for pattern in arguments.patterns)]
    about = facts()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    with harness.workspace() as folder:
        bench = Bench(folder)
        results = {}
        for scenario in wanted:
            title, unit, clients = scenario[0], scenario[4], list(scenario[5])
            rounds = {name: [] for name in clients}
            for number in range(arguments.rounds):
                turn = number % len(clients)
                for name in clients[turn:] + clients[:turn]:
                    rounds[name].append(one_round(bench, scenario, name, arguments.seconds))
                print(f"{title}, round {number + 1}: " +
                      ", ".join(f"{name} {shown(rounds[name][-1]['rate'])}" for name in clients) + f" {unit}", flush=True)
            results[title] = {"unit": unit, "clients": {name: summary(rounds[name]) for name in clients}}
        print_table(results)
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench.json").write_text(json.dumps({"about": about, "results": results}, indent=2) + "\n")
    print("figures in build/bench.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
