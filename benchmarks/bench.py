"""Measures this library, h2load, grpc++, grpcio and grpc-swift-2 by turns against the same servers; `run` starts it.

Prints tables of ratios and of the aims, and writes build/bench.json, .md and .svg (bench-quick, bench-part); a whole
run also keeps its figures in benchmarks/figures and writes docs/benchmarks.md. Nothing here fails because of a time; a
wrong reply does fail, and its figures do not count. The order of the clients changes from round to round, and ratios
are taken within a round, so that a slow period affects all clients alike.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import aims
import clients
import document
import harness
import plot
import scenarios
import servers
import table
from harness import ROOT

OUTPUT = ROOT / "build"
KEYS = ("cpu_us", *aims.LATENCIES, "slowest", "max_rss_kb", "switches", "server_busy", "client_busy")


class Bench:
    def __init__(self, folder, arguments):
        self.arguments = arguments
        self.programs = clients.peers(arguments.quick)
        self.clients, self.missing = clients.clients(folder, self.programs)
        self.servers = servers.Servers(folder, self.programs)
        self.rows = []
        self.wrong = []

    def server(self, name, tls=False):
        return self.servers.get(name, tls)

    def once(self, case, server, name, calls):
        """Makes one measurement and gives its figures. `cpu_us` and `switches` are per call; in a stream, per message."""
        client = self.clients[name]
        before = server.cpu()
        told = client.measure(case, server.target, calls, self.servers.authority)
        count, seconds = told["calls"], told["seconds"]
        # A client with its own server reports the server's CPU time.
        served = told["server"] if "server" in told else (server.cpu() - before) * count / told["served"]
        return {"rate": case.rate(count / seconds), "cpu_us": told["cpu"] / count * 1e6, "seconds": seconds,
                "server_busy": served / seconds, "client_busy": told["cpu"] / seconds, "calls": count,
                "switches": told.get("switches", 0) / count,
                **{key: told[key] for key in (*aims.LATENCIES, "slowest", "max_rss_kb") if told.get(key)}}

    def pilots(self, case, server):
        """How many calls each client makes in a measurement, found by a short run. A client that can't run the case is
        left out."""
        calls = {}
        for name in case.clients:
            if name not in self.clients:
                continue
            try:
                told = self.once(case, server, name, case.pilot)
            except clients.Unavailable as why:
                print(f"  {name} left out: {why}", flush=True)
            except (harness.Failure, ValueError) as why:
                self.failed(case, server, name, why)
            else:
                calls[name] = self.sized(case, told)
        return calls

    def sized(self, case, told):
        return max(int(told["calls"] / told["seconds"] * self.arguments.seconds), case.least)

    def failed(self, case, server, name, why):
        print(f"  {name} left out: {why}", flush=True)
        if "wrong" in str(why):
            self.wrong.append(f"{case.metric}, {name}: {why}")

    def rounds(self, case, name):
        often = name in case.often and not self.arguments.quick
        return self.arguments.rounds * (scenarios.OFTEN if often else 1)

    def case(self, case, server_name):
        server = self.server(server_name, case.tls)
        calls = self.pilots(case, server)
        names = list(calls)
        rounds = {name: [] for name in names}
        for number in range(max((self.rounds(case, name) for name in names), default=0)):
            here = [name for name in names if name in rounds and number < self.rounds(case, name)]
            turn = number % max(len(here), 1)
            for name in here[turn:] + here[:turn]:
                try:
                    told = self.once(case, server, name, calls[name])
                except (harness.Failure, ValueError) as why:
                    self.failed(case, server, name, why)
                    del rounds[name]
                else:
                    rounds[name].append(told)
                    calls[name] = self.sized(case, told)
        figures = {name: summary(rounds[name]) for name in case.clients if name in rounds}
        print(f"{case.metric}, {server_name}: " + ", ".join(
            f"{name} {table.shown(found['median'])}" for name, found in figures.items()) + f" {case.unit}", flush=True)
        self.add({"metric": case.metric, "unit": case.unit, "server": server_name, "better": "more", "tls": case.tls,
                  "bytes": case.bytes, "in_flight": case.in_flight, "threads": case.threads, "clients": figures})

    def add(self, row):
        row["noisy"] = any(table.spread(found) > table.NOISE for found in row["clients"].values())
        self.rows.append(row)

    def special(self, title, function, *arguments):
        if not self.wanted(title):
            return
        try:
            rows = function(self, *arguments)
        except (harness.Failure, clients.Unavailable, ValueError, KeyError) as why:
            print(f"{title} left out: {why}", flush=True)
            if "wrong" in str(why):
                self.wrong.append(f"{title}: {why}")
            return
        for row in rows:
            self.add(row)
            print(f"{row['metric']}: " + ", ".join(
                f"{name} {table.shown(found['median'])}" for name, found in row["clients"].items()) + f" {row['unit']}",
                flush=True)

    def wanted(self, title):
        return not self.arguments.patterns or any(re.search(pattern, title) for pattern in self.arguments.patterns)

    def run(self):
        for name, why in self.missing.items():
            print(f"{name} is left out: {why}")
        names = self.servers.names()
        if len(names) == 1:
            print("grpc++ as a server is left out: there is no build/bench/grpcpp_server")
        for name in names[:1] if self.arguments.quick else names:
            for case in scenarios.CASES:
                if self.wanted(case.metric):
                    without = scenarios.SLOW if self.arguments.quick else scenarios.OWN if name != names[0] else ()
                    self.case(scenarios.without(case, without), name)
        quick = self.arguments.quick
        self.special("memory", scenarios.memory, 200_000 if quick else 1_000_000, 1 if quick else 3)
        self.special("idle streams", scenarios.idle_streams, 10_000, 1 if quick else 3)
        self.special("idle channel", scenarios.idle_channel, 10)
        self.special("first call", scenarios.first_call, 5 if quick else 21)


def summary(rounds):
    """The medians of each figure, and the least and most of the rate."""
    rates = [one["rate"] for one in rounds]
    return {"median": statistics.median(rates), "min": min(rates), "max": max(rates),
            **{key: statistics.median(one[key] for one in rounds) for key in KEYS if key in rounds[0]}, "rounds": rounds}


def swift_version():
    package = (ROOT / "benchmarks" / "swift" / "Package.swift").read_text()
    return re.search(r'grpc-swift-2\.git", exact: "(.*?)"', package).group(1)


def facts(bench):
    def version(*command):
        return subprocess.run(command, text=True, stdout=subprocess.PIPE, check=False).stdout.split("\n")[0]

    header = (ROOT / "include" / "penstock" / "version.h").read_text()
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "penstock": re.search(r'#define PENSTOCK_VERSION +"(.*)"', header).group(1),
        "h2load": version("h2load", "--version").removeprefix("h2load nghttp2/") if "h2load" in bench.clients else None,
        "grpc++": version("pkg-config", "--modversion", "grpc++") if "grpc++" in bench.clients else None,
        "grpcio": getattr(bench.clients.get("grpcio"), "version", None),
        "grpc-swift-2": swift_version() if "grpc-swift-2" in bench.clients else None,
        "kernel": platform.release(),
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "cores": servers.cores(),
        "memory_mb": int(memory.group(1)) // 1024,
        "load": round(os.getloadavg()[0], 2),
        "rounds": bench.arguments.rounds,
        "seconds": bench.arguments.seconds,
    }
    return {key: value for key, value in found.items() if value is not None}


def output(arguments):
    """The path of the files to write, without their suffixes. A partial or quick run has files of its own, so that it does
    not overwrite those of the last whole run."""
    return OUTPUT / ("bench-part" if arguments.patterns else "bench-quick" if arguments.quick else "bench")


def write(result, path):
    OUTPUT.mkdir(exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    path.with_suffix(".md").write_text(table.markdown(result))
    path.with_suffix(".svg").write_text(plot.svg(result))
    if path.name == "bench" and not result.get("wrong"):
        document.keep("bench", table.kept(result))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="about 2 minutes: few short rounds, penstock-peer only")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="about how long each client runs in a round")
    parser.add_argument("--again", action="store_true", help="the tables of the last run once more; measure nothing")
    parser.add_argument("patterns", nargs="*", help="what is measured: regular expressions for its name")
    arguments = parser.parse_args()
    path = output(arguments)
    if arguments.again:
        result = json.loads(path.with_suffix(".json").read_text())
        result["aims"] = aims.judged(result["rows"])
        write(result, path)
        print(table.text(result))
        return 0
    # Many short rounds, so that a slow period of the machine affects only a few of them.
    arguments.rounds = arguments.rounds or (5 if arguments.quick else 11)
    arguments.seconds = arguments.seconds or 0.2
    started = time.monotonic()
    with harness.workspace() as folder:
        bench = Bench(folder, arguments)
        about = facts(bench)
        print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
        try:
            bench.run()
        finally:
            bench.servers.end()
    result = {"about": about, "rows": bench.rows, "aims": aims.judged(bench.rows), "wrong": bench.wrong,
              "noisy": table.noisy(bench.rows)}
    write(result, path)
    print(table.text(result))
    print(f"{time.monotonic() - started:.0f} s; figures in {path.relative_to(ROOT)}.json, tables in .md, plot in .svg")
    for why in bench.wrong:
        print(f"WRONG REPLIES, figures do not count: {why}")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
