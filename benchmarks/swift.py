"""Measures clients in Swift against grpc-swift-2 over NIO, one after the other in each round, and beside the C library.

    run swift [--rounds N] [--seconds S] [REGEX...]    only the rows whose names match one of the patterns

A ratio is taken within a round; the CPU time of a client is its process's own. Keeps its figures in benchmarks/figures, and
writes docs/benchmarks.md. A wrong reply fails.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import aims
import build_peers
import clients
import document
import harness
import python
import scenarios

NIO, OVER, SWIFT, C = "grpc-swift-2", "grpc-swift-2 over penstock", "penstock, Swift", "penstock"
BASES = (NIO, C)
CASES = tuple(dataclasses.replace(case, clients=(C, SWIFT, OVER, NIO)) for case in scenarios.CASES if case.metric in (
    aims.SERIAL, aims.MANY, "ping-pong on one stream", aims.UP, aims.DOWN))
# The aims: the row, our client, the figure, and the bound of its ratio to that of grpc-swift-2 over NIO.
AIMS = (
    (aims.MANY, SWIFT, "rate", ">=", 5),
    (aims.MANY, SWIFT, "cpu_us", "<=", 0.2),
    *((case.metric, OVER, "rate", ">=", 1.5) for case in CASES),
)


def once(found, case, target, name, calls):
    told = found[name].measure(case, target, calls, None)
    return {"rate": case.rate(told["calls"] / told["seconds"]), "cpu_us": told["cpu"] / told["calls"] * 1e6,
            "seconds": told["seconds"], "calls": told["calls"]}


def row(found, case, target, rounds, seconds):
    def sized(told):
        return max(int(told["calls"] / told["seconds"] * seconds), case.least)

    calls = {name: sized(once(found, case, target, name, case.pilot)) for name in case.clients if name in found}
    taken = {name: [] for name in calls}
    for number in range(rounds):
        here = list(taken)
        turn = number % len(here)
        for name in here[turn:] + here[:turn]:
            taken[name].append(once(found, case, target, name, calls[name]))
            calls[name] = sized(taken[name][-1])
    return {name: python.summary(samples, taken, BASES) for name, samples in taken.items()}


def judged(rows):
    """Gives for each aim that was measured its text, the figure, and whether it is met."""
    told = []
    for title, name, key, sign, bound in AIMS:
        ratios = rows.get(title, {}).get(name, {}).get("of", {}).get(NIO)
        if ratios is not None:
            value = ratios[key]["median"]
            what = "CPU" if key == "cpu_us" else "rate"
            told.append((f"{title}: {what} of {name} {sign} {bound} of {NIO}", round(value, 2),
                         aims.SIGNS[sign](value, bound)))
    return told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long each client runs in a round")
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()
    rows = {}
    with harness.workspace() as folder, harness.peer() as server:
        programs = build_peers.build(["grpc-swift-client", "penstock-swift-client"])
        found, missing = clients.clients(folder, {name: path for name, path in programs.items() if path})
        for name in (name for name in (NIO, OVER, SWIFT) if name in missing):
            print(f"{name} is left out: {missing[name]}")
        for case in CASES:
            if not arguments.patterns or any(re.search(each, case.metric) for each in arguments.patterns):
                rows[case.metric] = row(found, case, server.address, arguments.rounds, arguments.seconds)
                print(f"{case.metric}: " + ", ".join(f"{name} {one['rate']:,.0f}" for name, one in rows[case.metric].items()),
                      flush=True)
    results = {"rows": rows, "aims": judged(rows)}
    if not arguments.patterns and not missing.keys() & {NIO, OVER, SWIFT}:
        document.keep("swift", results)
    print("\n".join(document.swift(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
