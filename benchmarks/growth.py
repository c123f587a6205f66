"""Unary calls with a growing number of one thing: calls a second, the client's CPU per call, and its peak memory.

The axes: calls in flight, message size, metadata entries, interceptors, channels of one runtime, blocking threads. Each
point is measured by a separate process, against one penstock-peer. A round goes through all points of an axis, every
second round backwards. The results are medians, minimum and maximum. Prints tables, and writes build/growth.json;
a run of all axes also keeps its figures in benchmarks/figures, and writes docs/benchmarks.md. Nothing here fails because
of a time.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import document
import harness
from harness import ROOT

HERE = ROOT / "benchmarks"
# For each axis by name: the option of growth_client, the label, the points, and further options.
AXES = {
    "in-flight": ("--in-flight", "calls in flight", [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000], []),
    "bytes": ("--bytes", "bytes of a message, 4 calls in flight",
              [0, 16, 256, 4096, 16384, 65536, 1 << 18, 1 << 20, 1 << 22, 1 << 24], ["--in-flight", 4]),
    "metadata": ("--metadata", "metadata entries of a request, 100 calls in flight",
                 [0, 1, 2, 5, 10, 20, 50, 100, 200], []),
    "interceptors": ("--interceptors", "interceptors, 100 calls in flight", [0, 1, 2, 4, 8, 16, 32], []),
    "channels": ("--channels", "channels of one runtime, 100 calls in flight",
                 [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], []),
    "threads": ("--threads", "threads that make blocking calls", [1, 2, 4, 8, 16, 32], []),
}


def run(program, target, axis, value, calls):
    option, _, _, more = AXES[axis]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(harness.LIBRARY)}
    command = [str(part) for part in (program, "--target", target, option, value, "--calls", calls, *more)]
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=300, check=False)
    harness.check(done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}")
    return json.loads(done.stdout)


def least_calls(axis, value):
    """The least number of calls for one value of an axis: enough to use each channel, or each of the concurrent calls' slots, a
    few times."""
    return 4 * max(value if axis in ("in-flight", "channels") else 1, 10 if axis == "bytes" else 200)


def measure(axis, program, target, rounds, seconds):
    """Measures an axis: for each of its points, the figures of all rounds."""
    values = AXES[axis][2]
    calls = {}
    for value in values:
        few = least_calls(axis, value)
        told = run(program, target, axis, value, few)
        calls[value] = max(int(few * seconds / told["seconds"]), few)
    samples = {value: [] for value in values}
    for number in range(rounds):
        for value in values if number % 2 == 0 else values[::-1]:
            told = run(program, target, axis, value, calls[value])
            samples[value].append({"rate": told["calls"] / told["seconds"],
                                   "cpu_us": (told["user"] + told["system"]) / told["calls"] * 1e6,
                                   "rss_mb": told["max_rss_kb"] / 1000})
        print(f"{axis}, round {number + 1}: " + " ".join(f"{one[-1]['rate']:,.0f}" for one in samples.values()) +
              " calls/s", file=sys.stderr, flush=True)
    return {value: {key: {"median": statistics.median(one[key] for one in taken), "min": min(one[key] for one in taken),
                          "max": max(one[key] for one in taken)} for key in taken[0]}
            for value, taken in samples.items()}


def kept(axis, found):
    """The figures of an axis that its table needs."""
    points = [{"value": value, "rate": {key: round(one, 1) for key, one in figures["rate"].items()},
               **{key: round(figures[key]["median"], 1) for key in ("cpu_us", "rss_mb")}} for value, figures in found.items()]
    return {"axis": AXES[axis][1], "points": points}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=f"of {', '.join(AXES)}; all without")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="about how long each point runs in a round")
    parser.add_argument("--markdown", action="store_true", help="tables only on standard output")
    arguments = parser.parse_args()
    unknown = [axis for axis in arguments.axes if axis not in AXES]
    if unknown:
        parser.error(f"no axis {', '.join(unknown)}")
    # A thousand channels need a thousand descriptors, in the client and in the server.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = {}
    with harness.workspace():
        program = harness.build_c("growth_client", [HERE / "growth_client.c"], optimize="-O2")
        target = harness.peer("--stream-window", str(1 << 30)).address
        for axis in arguments.axes or AXES:
            results[axis] = measure(axis, program, target, arguments.rounds, arguments.seconds)
    for axis, found in results.items():
        rows = document.growth_table(axis, kept(axis, found))
        print("\n".join(["", *([] if arguments.markdown else [axis]), *rows]))
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    about = {"cpu": cpu.group(1) if cpu else "", "cores": os.cpu_count(), "load": os.getloadavg()[0],
             "rounds": arguments.rounds}
    told = json.dumps({"about": about, "axes": results}, indent=2)
    (ROOT / "build" / "growth.json").write_text(told + "\n")
    if not arguments.axes:
        document.keep("growth", {"axes": {axis: kept(axis, found) for axis, found in results.items()}})
    noisy = sum(document.is_noisy(figures["rate"]) for found in results.values() for figures in found.values())
    if not arguments.markdown:
        print(f"\nfigures in build/growth.json\n{noisy} rates moved by more than {document.NOISE:.0%} "
              "between rounds" + (": this machine is too noisy to tell small differences" if noisy else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
