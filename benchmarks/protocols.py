"""Measures unary calls over each protocol and each version of HTTP. The clients take turns against one penstock-peer.

    run protocols [--rounds N] [--seconds S] [REGEX...]    only the rows whose name matches a REGEX

The C client makes calls over gRPC, gRPC-Web and Connect. `bare` (bare_http1.c) makes Connect's calls over HTTP/1.1
without a library. From Python, this library's client is compared with connectrpc's. A ratio is the median of the ratios
of all rounds; the lower and upper quartile tell how far it varies. Instructions are counted by callgrind. The figures are
stored in benchmarks/figures, and docs/benchmarks.md is written.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import build_peers
import callgrind
import clients
import document
import harness
import servers
import table
from harness import ROOT

HERE = ROOT / "benchmarks"
GRPC, BARE, OTHER = "gRPC", "bare client, HTTP/1.1", "connectrpc"
CONNECT1, CONNECT2 = "Connect, HTTP/1.1", "Connect, HTTP/2"
# The protocol and the HTTP version of each C client of this library. The peer speaks all of them on one port.
OPTIONS = {
    GRPC: ("grpc", "2"),
    "gRPC-Web, HTTP/2": ("grpc-web", "2"),
    "gRPC-Web text, HTTP/2": ("grpc-web-text", "2"),
    CONNECT2: ("connect", "2"),
    CONNECT1: ("connect", "1.1"),
    "gRPC-Web, HTTP/1.1": ("grpc-web", "1.1"),
}
# For each row: the measured calls, their clients, and the client that the ratios refer to.
ROWS = {
    "unary, 1 in flight": ({"in_flight": 1, "apart": True}, (*OPTIONS, BARE)),
    "unary, 100 in flight": ({"in_flight": 100}, (*OPTIONS, BARE)),
    "Python: unary, 1 thread, HTTP/2": ({"threads": 1, "http": "2"}, ("penstock", OTHER)),
    "Python: unary, 1 thread, HTTP/1.1": ({"threads": 1, "http": "1.1"}, ("penstock", OTHER)),
    "Python: unary, 8 threads, HTTP/2": ({"threads": 8, "http": "2"}, ("penstock", OTHER)),
    "Python: unary, 8 threads, HTTP/1.1": ({"threads": 8, "http": "1.1"}, ("penstock", OTHER)),
}
# The aims: the row, the client, the figure, the client that it is compared with, and the bound of the ratio.
AIMS = (
    *((row, name, "cpu_us", GRPC, "<=", 1.15) for row in ("unary, 1 in flight", "unary, 100 in flight")
      for name in (CONNECT2, "gRPC-Web, HTTP/2")),
    *((row, CONNECT1, "cpu_us", BARE, "<=", 1.3) for row in ("unary, 1 in flight", "unary, 100 in flight")),
    *((row, "penstock", "rate", OTHER, ">=", 1.5) for row in ROWS if row.startswith("Python")),
)
# Rows in which threads or processes wait for each other have more rounds, by this factor. Their rates depend on whether the
# system runs the two on one core or on both, for most of a run: the two rates may differ by a factor of two. In rows that
# are `apart`, the client has one core to itself, so that each of its rounds is alike.
MORE_ROUNDS = 3
CORES = sorted(os.sched_getaffinity(0))
COUNTED = {"unary, serial": (["serial"], 200, 1200), "unary, 100 in flight": (["flight", "--in-flight", 100], 1000, 4000)}
PYTHON_PATH = os.pathsep.join((str(harness.GENERATED), str(ROOT / "bindings" / "python" / "src")))


class Bench:
    def __init__(self, server, programs):
        self.server = server
        self.client = clients.build_client()
        self.bare = programs["bare_http1"]

    def command(self, name, what):
        """The command that runs the client, without the number of calls."""
        if name in OPTIONS:
            protocol, http = OPTIONS[name]
            return [self.client, "--target", self.server.target, "--in-flight", what["in_flight"], "--options",
                    f'"protocol": "{protocol}", "http": "{http}", "http1_max_connections": 100']
        if name == BARE:
            return [self.bare, "--target", self.server.target, "--in-flight", what["in_flight"]]
        return [sys.executable, HERE / "python_client.py", "--client", name, "--target", self.server.target, "--http",
                what["http"], "--threads", what["threads"]]

    def once(self, name, what, calls):
        before = self.server.cpu()
        alone = ["taskset", "-c", CORES[0]] if what.get("apart") and len(CORES) > 1 else []
        child = clients.Child([*alone, *self.command(name, what), "--calls", calls], PYTHONPATH=PYTHON_PATH,
                              PENSTOCK_LIBRARY=str(harness.LIBRARY / "libpenstock.so.0"))
        told = json.loads(child.output.strip().split("\n")[-1])
        # The server's processor time includes the warm-up calls.
        served = (self.server.cpu() - before) * told["calls"] / (told["calls"] * 1.1)
        return {"rate": told["calls"] / told["seconds"], "cpu_us": (told["user"] + told["system"]) / told["calls"] * 1e6,
                "server_busy": served / told["seconds"], **{key: told[key] for key in ("p50_us", "p99_us") if told.get(key)}}

    def row(self, title, rounds, seconds):
        what, names = ROWS[title]
        self.server.run_on(CORES[1:] if what.get("apart") and len(CORES) > 1 else CORES)
        calls, taken = {}, {}
        for name in names:
            try:
                calls[name] = max(int(self.once(name, what, 400)["rate"] * seconds), 200)
                taken[name] = []
            except harness.Failure as why:
                print(f"{title}: {name} is left out: {why}", flush=True)
        for number in range(rounds if what.get("in_flight", 1) > 1 else rounds * MORE_ROUNDS):
            here = [name for name in names if name in taken]
            turn = number % len(here)
            for name in here[turn:] + here[:turn]:
                told = self.once(name, what, calls[name])
                taken[name].append(told)
                calls[name] = max(int(told["rate"] * seconds), 200)
        return {name: self.summary(title, name, taken) for name in names if name in taken}

    @staticmethod
    def summary(title, name, taken):
        found = {key: statistics.median(one[key] for one in taken[name]) for key in taken[name][0]}
        rates = [one["rate"] for one in taken[name]]
        base = OTHER if OTHER in ROWS[title][1] else GRPC
        compared = {"rate": (base, "rate"), "cpu_us": (base, "cpu_us"), "cpu_of_bare": (BARE, "cpu_us")}
        ratios, quartiles = {}, {}
        for key, (other, figure) in compared.items():
            if other in taken:
                each = [one[figure] / against[figure] for one, against in zip(taken[name], taken[other], strict=True)]
                lower, ratios[key], upper = statistics.quantiles(each if len(each) > 1 else each * 2, n=4, method="inclusive")
                quartiles[key] = {"lower": lower, "upper": upper}
        return {**found, "min": min(rates), "max": max(rates), "ratios": ratios, "quartiles": quartiles}

    def counts(self, folder):
        """Counts the instructions of a call, by callgrind."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(harness.LIBRARY)}
        program = harness.build_c("counted_client", [HERE / "counted_client.c"], optimize="-O2")
        found = {}
        for name, (protocol, http) in OPTIONS.items():
            found[name] = {}
            for title, (arguments, few, many) in COUNTED.items():
                command = [program, "--target", self.server.target, "--protocol", protocol, "--http", http, "--what",
                           *arguments, "--calls"]
                runs = [callgrind.run([*command, calls], folder / "callgrind", environment) for calls in (few, many)]
                found[name][title] = runs[1].per_call(runs[0], many - few).total()
                print(f"{name}, {title}: {found[name][title]:,.0f} instructions a call", flush=True)
        return found


def judged(rows):
    """Yields each aim that was measured: its text, the ratio, its lower and upper quartile, and whether the aim is met."""
    for row, name, figure, other, sign, bound in AIMS:
        if name not in rows.get(row, {}) or other not in rows[row]:
            continue
        key = "cpu_of_bare" if other == BARE else figure
        value, quartiles = rows[row][name]["ratios"][key], rows[row][name]["quartiles"][key]
        words = f"{row}, {name}: {'client CPU' if figure == 'cpu_us' else 'rate'} {sign} {bound:g} of {other}"
        yield (words, *(round(one, 2) for one in (value, quartiles["lower"], quartiles["upper"])),
               value <= bound if sign == "<=" else value >= bound)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()

    def wanted(title):
        return not arguments.patterns or any(re.search(pattern, title) for pattern in arguments.patterns)

    results = {"rows": {}, "instructions": {}}
    harness.generate_protos()
    programs = build_peers.build(["bare_http1"])
    with harness.workspace() as folder, harness.peer("--stream-window", str(servers.WINDOW)) as peer:
        bench = Bench(servers.Server(peer), programs)
        for title in filter(wanted, ROWS):
            results["rows"][title] = bench.row(title, arguments.rounds, arguments.seconds)
            print("\n".join(document.protocols({title: results["rows"][title]})), flush=True)
        if wanted("instructions"):
            results["instructions"] = bench.counts(folder)
    results["aims"] = list(judged(results["rows"]))
    for words, value, lower, upper, met in results["aims"]:
        print(f"{words}: {value:.2f} ({lower:.2f} .. {upper:.2f}), {'met' if met else 'MISSED'}")
    if not arguments.patterns:
        document.keep("protocols", {**table.rounded({"rows": results["rows"], "instructions": results["instructions"]}),
                                    "aims": results["aims"]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
