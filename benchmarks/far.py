"""Measures downloads from a server that is far away, with one client after the other. On a long path the windows limit the
rate.

    run far [--rounds N]

The bytes pass through delay.py, so that the figures do not depend on what the kernel offers. Keeps its figures in
benchmarks/figures, and writes docs/benchmarks.md.
"""

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import clients
import document
import harness
import scenarios
from aims import ratio
from harness import check

# The round-trip times in ms.
ROUND_TRIPS = (20, 50)
# The client for grpc++ is left out: it sets windows of its own, which do not grow.
CLIENTS = ("penstock", "penstock, 64 MiB windows", "penstock, fixed windows", "grpcio")
# The messages of a download have 50 MiB in all.
CASE = scenarios.Case("64 KiB messages down", "down", CLIENTS, bytes=scenarios.KIB64)
MESSAGES = 50 * scenarios.MIB // CASE.bytes


def measure(found, target, rounds):
    rates = {name: [] for name in CLIENTS}
    for number in range(rounds):
        turn = number % len(CLIENTS)
        for name in CLIENTS[turn:] + CLIENTS[:turn]:
            told = found[name].measure(CASE, target, MESSAGES, None)
            check(told["calls"] == MESSAGES, name, told)
            rates[name].append({"rate": CASE.rate(told["calls"] / told["seconds"])})
    return rates


def summary(rates):
    figures = {name: {"rounds": rounds} for name, rounds in rates.items()}
    return {name: {"median": round(statistics.median(one["rate"] for one in rounds), 1),
                   "min": round(min(one["rate"] for one in rounds), 1), "max": round(max(one["rate"] for one in rounds), 1),
                   "ratio": round(ratio(figures[name], figures["grpcio"]), 2)}
            for name, rounds in rates.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    results = {}
    with harness.workspace() as folder, harness.peer() as server:
        found, _ = clients.clients(folder, {})
        for trip in ROUND_TRIPS:
            command = [sys.executable, clients.HERE / "delay.py", server.address, trip / 2]
            with harness.Server(command) as relay:
                results[str(trip)] = summary(measure(found, relay.address, arguments.rounds))
    document.keep("far", results)
    print("\n".join(document.far(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
