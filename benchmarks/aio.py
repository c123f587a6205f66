"""Measures calls on an event loop of asyncio against grpc.aio's, one client after the other in each round.

    run aio [--rounds N] [--calls N]

Keeps its figures in benchmarks/figures, and writes docs/benchmarks.md.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import document
import harness
from harness import ROOT, check

HERE = ROOT / "benchmarks"
# The measured scenarios, with the number of calls or streams at once.
CASES = {"unary, 1 in flight": ("unary", 1), "unary, 100 in flight": ("unary", 100),
         "ping-pong on 100 streams": ("bidi", 100), "messages down on one stream": ("down", 1)}
BASE = "grpc.aio"
CLIENTS = {BASE: ("grpc.aio", "asyncio"), "penstock.aio": ("penstock.aio", "asyncio"),
           "penstock.aio, uvloop": ("penstock.aio", "uvloop"), "penstock.grpc.aio": ("penstock.grpc.aio", "asyncio"),
           "connectrpc": ("connectrpc", "asyncio")}


def clients_of(case):
    """connectrpc reads the requests of a bidi call from an iterator, and has no `write`."""
    return [name for name in CLIENTS if name != "connectrpc" or CASES[case][0] != "bidi"]


def once(target, client, case, calls):
    """The rate of one run, and its CPU time per call in us."""
    (package, loop), (what, in_flight) = CLIENTS[client], CASES[case]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bindings/python/src"),
                   "LD_LIBRARY_PATH": str(harness.LIBRARY)}
    command = [sys.executable, HERE / "aio_client.py", "--target", target, "--package", package, "--loop", loop,
               "--what", what, "--in-flight", in_flight, "--calls", calls]
    done = subprocess.run([str(part) for part in command], env=environment, text=True, check=False, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(done.returncode == 0, client, done.stdout[-2000:])
    told = json.loads(done.stdout)
    return {"rate": told["calls"] / told["seconds"], "cpu_us": (told["user"] + told["system"]) / told["calls"] * 1e6}


def summary(samples):
    """The medians of each client, and those of the ratios to grpc.aio in the same round."""
    found = {}
    for name, taken in samples.items():
        pairs = list(zip(taken, samples[BASE], strict=True))
        found[name] = {**{key: round(statistics.median(one[key] for one in taken), 1) for key in ("rate", "cpu_us")},
                       **{f"{key}_of_base": round(statistics.median(one[key] / base[key] for one, base in pairs), 2)
                          for key in ("rate", "cpu_us")}}
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20_000)
    arguments = parser.parse_args()
    results = {}
    with harness.peer() as server:
        for case in CASES:
            samples = {name: [] for name in clients_of(case)}
            calls = arguments.calls // (4 if CASES[case][1] == 1 else 1)
            for number in range(arguments.rounds):
                names = list(samples) if number % 2 == 0 else list(samples)[::-1]
                for name in names:
                    samples[name].append(once(server.address, name, case, calls))
            results[case] = summary(samples)
    document.keep("aio", results)
    print("\n".join(document.aio(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
