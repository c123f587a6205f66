"""Measures the cost of interceptors: the time of a hop and of a callback in C and in Python, calls a second with many
interceptors, and the time of a registration.

Run by `make bench` after bench.py. Prints tables, keeps the figures in benchmarks/figures and writes docs/benchmarks.md. The
cost of a hop is the difference between a call with 32 such hops (8 in Python) and one without, divided by their number; that
of a callback is the cost of a hop divided by the hop's callbacks. A stub at the bottom of the chain answers, so neither
server nor socket is measured. Calls a second are against penstock-peer, with 100 in flight.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import clients
import document
import harness
import table
from harness import ROOT

HERE = ROOT / "benchmarks"
HOPS = 32
# For each kind of hop, how many of its callbacks run in a unary call. Below: a number of calls that takes about half a second.
KINDS = {"null": 1, "start": 1, "start_status": 2, "all": 10, "pause_same": 1, "pause_other": 1}
CALLS = {"c": 20_000, "python": 1_000}
COUNTS = (0, 1, 4, 8, 16, 32)


def run(command):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(harness.LIBRARY), "PYTHONPATH": str(ROOT / "bindings/python/src"),
                   "PENSTOCK_LIBRARY": str(harness.LIBRARY / "libpenstock.so")}
    done = subprocess.run([str(part) for part in command], env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    harness.check(done.returncode == 0, f"{command}: {done.stdout[-2000:]}")
    return json.loads(done.stdout)


def median(rounds, key):
    return statistics.median(one[key] for one in rounds)


def hop_costs(rounds, program):
    """For C and Python: nanoseconds and allocations of each kind's hop and callback."""
    commands = {"c": [program], "python": [sys.executable, HERE / "chain_client.py"]}
    found = {}
    for language, command in commands.items():
        hops = HOPS if language == "c" else 8
        samples = {what: [] for what in ("none", *KINDS)}
        for _ in range(rounds):
            for what, taken in samples.items():
                calls = CALLS[language] // (4 if what == "pause_other" else 1)
                taken.append(run([*command, "--what", what, "--hops", hops, "--calls", calls]))
        for what, callbacks in KINDS.items():
            key = "ns" if what == "pause_other" else "cpu_ns"
            extra = median(samples[what], key) - median(samples["none"], key)
            figures = {"ns_per_hop": extra / hops, "ns_per_callback": extra / hops / callbacks}
            if language == "c":
                figures["allocations_per_hop"] = (
                    median(samples[what], "allocations") - median(samples["none"], "allocations")) / hops
            found.setdefault(what, {})[language] = figures
    return found


def registry_costs(rounds, program):
    def taken(what, hops, calls):
        return [run([program, "--what", what, "--hops", hops, "--calls", calls]) for _ in range(rounds)]

    alone, among = taken("none", 0, 20_000), taken("filtered", 1000, 20_000)
    return {
        "call_ns_alone": median(alone, "cpu_ns"),
        "call_ns_among_1000_filtered": median(among, "cpu_ns"),
        "registration_and_removal_ns": median(taken("register", 0, 50_000), "cpu_ns"),
        "registration_and_removal_among_1000_ns": median(taken("register", 1000, 5_000), "cpu_ns"),
    }


def rates(rounds, program):
    """Calls a second for each number of interceptors in COUNTS, each with on_start and on_status; 0 is none."""
    peer = harness.peer("--stream-window", str(1 << 30))
    samples = {count: [] for count in COUNTS}
    for number in range(rounds):
        order = COUNTS if number % 2 == 0 else COUNTS[::-1]
        for count in order:
            told = run([program, "--target", peer.address, "--what", "unary", "--in-flight", 100, "--calls", 100_000,
                        "--interceptors", count])
            samples[count].append({"rate": told["calls"] / told["seconds"],
                                   "cpu_us": (told["user"] + told["system"]) / told["calls"] * 1e6})
    return {count: {"rate": median(taken, "rate"), "cpu_us": median(taken, "cpu_us"),
                    "of_none": statistics.median(one["rate"] / none["rate"]
                                                 for one, none in zip(taken, samples[0], strict=True)),
                    "min": min(one["rate"] for one in taken), "max": max(one["rate"] for one in taken)}
            for count, taken in samples.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    chain = harness.build_c("chain_client", [HERE / "chain_client.c"], optimize="-O2")
    client = clients.build_client()
    results = {"hops": hop_costs(rounds, chain), "registry": registry_costs(rounds, chain),
               "rates": rates(rounds, client)}

    print(f"\n{'a hop of a unary call':<46}{'C: ns':>9}{'a callback':>12}{'allocations':>13}{'Python: us':>12}"
          f"{'a callback':>12}")
    for what, found in results["hops"].items():
        c, python = found["c"], found["python"]
        print(f"{document.HOPS[what]:<46}{c['ns_per_hop']:>9.0f}{c['ns_per_callback']:>12.0f}{c['allocations_per_hop']:>13.2f}"
              f"{python['ns_per_hop'] / 1000:>12.1f}{python['ns_per_callback'] / 1000:>12.1f}")
    print(f"\n{'interceptors (C, on_start and on_status)':<46}{'calls/s':>12}{'min .. max':>22}{'of none':>9}{'CPU us':>8}")
    for count, found in results["rates"].items():
        span = f"{found['min']:,.0f} .. {found['max']:,.0f}"
        print(f"{count:<46}{found['rate']:>12,.0f}{span:>22}{found['of_none']:>9.2f}{found['cpu_us']:>8.2f}")
    registry = results["registry"]
    print(f"\na call that a stub answers: {registry['call_ns_alone']:,.0f} ns; with 1,000 interceptors that want other "
          f"methods: {registry['call_ns_among_1000_filtered']:,.0f} ns"
          f"\none registration and its removal: {registry['registration_and_removal_ns'] / 1000:.2f} us; "
          f"among 1,000: {registry['registration_and_removal_among_1000_ns'] / 1000:.2f} us")
    document.keep("interceptors", table.rounded(results))
    print("figures in benchmarks/figures/interceptors.json, tables in docs/benchmarks.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
