"""Measures calls and streams from Python against grpcio and connectrpc, one client after the other in each round.

    run python [--rounds N] [--seconds S] [REGEX...]    only the rows whose names match one of the patterns

Each message is of google.protobuf. A ratio is taken within a round; the CPU time of a client is its process's own. Keeps
its figures in benchmarks/figures, and writes docs/benchmarks.md.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import clients
import document
import harness
from harness import ROOT

HERE = ROOT / "benchmarks"
PYTHON_PATH = os.pathsep.join((str(harness.GENERATED), str(ROOT / "bindings" / "python" / "src")))
CONNECT, GRPC = "penstock, Connect", "penstock, gRPC"
INTERCEPTED = "penstock, gRPC, one interceptor"
OURS = {CONNECT: ("penstock", "--protocol", "connect"), GRPC: ("penstock", "--protocol", "grpc"),
        INTERCEPTED: ("penstock", "--protocol", "grpc", "--interceptor"), "penstock.grpc": ("penstock.grpc",)}
THEIRS = {"grpcio": ("grpcio",), "connectrpc": ("connectrpc",)}
CLIENTS = {**OURS, **THEIRS}
ALL = (CONNECT, GRPC, *THEIRS)
UNARY = (GRPC, CONNECT, "penstock.grpc", *THEIRS)
STREAMS = {"small messages down": "down", "small messages up": "up", "small messages up, from a list": "list",
           "small messages both ways": "both"}
ROWS = {
    "unary, 1 thread": (("--what", "unary"), (*UNARY, INTERCEPTED)),
    "unary, 16 threads": (("--what", "unary", "--threads", 16), UNARY),
    **{name: (("--what", what, "--bytes", 16), ALL) for name, what in STREAMS.items()},
}
# The aims: the row, our client, the figure, theirs, and the bound of the ratio; "every": it holds in each round.
AIMS = (
    ("small messages down", CONNECT, "cpu_us", "connectrpc", "<=", 1, "median"),
    ("small messages down", CONNECT, "cpu_us", "grpcio", "<=", 0.1, "median"),
    ("unary, 1 thread", GRPC, "cpu_us", "grpcio", "<=", 0.333, "median"),
    ("unary, 16 threads", GRPC, "rate", "grpcio", ">=", 2, "every"),
)
# The calls of the run that finds a client's rate, and the fewest of a measurement.
PILOT, LEAST = 500, 4000
# The most that an interceptor with two callbacks in Python may add to a call, in us.
INTERCEPTOR_US = 10


def once(target, name, what, calls):
    command = [sys.executable, HERE / "python_client.py", "--client", CLIENTS[name][0], "--target", target,
               *CLIENTS[name][1:], *what, "--calls", calls]
    child = clients.Child(command, PYTHONPATH=PYTHON_PATH, PENSTOCK_LIBRARY=str(harness.LIBRARY / "libpenstock.so.0"))
    told = json.loads(child.output.strip().split("\n")[-1])
    return {"rate": told["calls"] / told["seconds"], "cpu_us": (told["user"] + told["system"]) / told["calls"] * 1e6}


def row(target, title, rounds, seconds):
    what, names = ROWS[title]
    calls, taken = {}, {}
    for name in names:
        try:
            calls[name] = max(int(once(target, name, what, PILOT)["rate"] * seconds), LEAST)
            taken[name] = []
        except harness.Failure as why:
            print(f"{title}: {name} is left out: {why}", flush=True)
    for number in range(rounds):
        here = list(taken)
        turn = number % len(here)
        for name in here[turn:] + here[:turn]:
            taken[name].append(once(target, name, what, calls[name]))
            calls[name] = max(int(taken[name][-1]["rate"] * seconds), LEAST)
    found = {name: summary(samples, taken, THEIRS) for name, samples in taken.items()}
    if INTERCEPTED in taken and GRPC in taken:
        found[INTERCEPTED]["added_us"] = statistics.median(
            one["cpu_us"] - base["cpu_us"] for one, base in zip(taken[INTERCEPTED], taken[GRPC], strict=True))
    return found


def summary(samples, taken, others):
    """The medians of one client, and the ratios to each of `others` in the same round: median, least and most."""
    found = {key: statistics.median(one[key] for one in samples) for key in ("rate", "cpu_us")}
    found["of"] = {}
    for other in others:
        if other in taken:
            found["of"][other] = ratios = {}
            for key in ("rate", "cpu_us"):
                each = [one[key] / base[key] for one, base in zip(samples, taken[other], strict=True)]
                ratios[key] = {"median": statistics.median(each), "least": min(each), "most": max(each)}
    return found


def judged(rows):
    """Gives for each aim that was measured its text, the figure, and whether it is met."""
    found = []
    for title, name, key, other, sign, bound, how in AIMS:
        ratio = rows.get(title, {}).get(name, {}).get("of", {}).get(other)
        if ratio is None:
            continue
        value = ratio[key]["median" if how == "median" else "most" if sign == "<=" else "least"]
        met = value <= bound if sign == "<=" else value >= bound
        what = "CPU" if key == "cpu_us" else "rate"
        where = " in every round" if how == "every" else ""
        found.append((f"{title}: {what} of {name} {sign} {bound} of {other}{where}", round(value, 2), met))
    added = rows.get("unary, 1 thread", {}).get(INTERCEPTED, {}).get("added_us")
    if added is not None:
        found.append((f"unary, 1 thread: an interceptor with two callbacks adds <= {INTERCEPTOR_US} us of CPU",
                      round(added, 1), added <= INTERCEPTOR_US))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long each client runs in a round")
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()
    harness.generate_protos()
    rows = {}
    with harness.peer() as server:
        for title in ROWS:
            if not arguments.patterns or any(re.search(each, title) for each in arguments.patterns):
                rows[title] = row(server.address, title, arguments.rounds, arguments.seconds)
    results = {"rows": rows, "aims": judged(rows)}
    if not arguments.patterns:
        document.keep("python", results)
    print("\n".join(document.python(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
