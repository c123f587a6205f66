"""Measures the start of a Python program: the import of this package or of grpcio, and the first call, by turns.

    run start [--rounds N]

Each client has its own process, whose CPU time and memory are compared; modules have been compiled before. Keeps its
figures in benchmarks/figures, and writes docs/benchmarks.md.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import clients
import document
import harness
from harness import ROOT

CALL = """
with {channel} as channel:
    assert channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
"""
OURS, THEIRS = "penstock", "grpcio"
ITSELF, IMPORT, FIRST = "Python itself", "import", "import and first call"
IMPORTS = {OURS: "import penstock", THEIRS: "import grpc"}
CHANNELS = {OURS: "penstock.Channel(sys.argv[1], tls=False)", THEIRS: "grpc.insecure_channel(sys.argv[1])"}
# The programs, by what they do and whose package they use.
PROGRAMS = {
    (ITSELF, ""): "",
    **{(IMPORT, name): text for name, text in IMPORTS.items()},
    **{(FIRST, name): text + CALL.format(channel=CHANNELS[name]) for name, text in IMPORTS.items()},
}
END = """
import json, resource
used = resource.getrusage(resource.RUSAGE_SELF)
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"cpu_ms": (used.ru_utime + used.ru_stime) * 1000, "peak_mb": peak / 1024}))
"""
# The aims: what, the figure, and the bound of the ratio to grpcio's.
AIMS = ((FIRST, "cpu_ms", 1), (FIRST, "peak_mb", 1))
# The most that the import may take beyond Python itself, in ms.
IMPORT_MS = 30
NAMES = {"cpu_ms": "CPU", "peak_mb": "memory"}


def once(program, target, cache):
    child = clients.Child([sys.executable, "-c", f"import sys\n{program}\n{END}", target],
                          PYTHONPATH=str(ROOT / "bindings" / "python" / "src"), PYTHONDONTWRITEBYTECODE="",
                          PYTHONPYCACHEPREFIX=cache)
    return json.loads(child.output.strip().split("\n")[-1])


def measured(target, rounds):
    """The figures of each program in each round."""
    taken = {key: [] for key in PROGRAMS}
    with tempfile.TemporaryDirectory() as cache:
        for program in PROGRAMS.values():
            once(program, target, cache)
        for number in range(rounds):
            turn = number % len(PROGRAMS)
            for key in [*PROGRAMS][turn:] + [*PROGRAMS][:turn]:
                taken[key].append(once(PROGRAMS[key], target, cache))
    return taken


def summary(taken):
    """The median of each figure, by what and by package; and of its ratios to grpcio's in the same round."""
    found = {}
    for (what, name), samples in taken.items():
        one = {key: statistics.median(each[key] for each in samples) for key in NAMES}
        others = taken.get((what, THEIRS))
        if others:
            one["of"] = {key: statistics.median(each[key] / other[key] for each, other in zip(samples, others, strict=True))
                         for key in NAMES}
        found.setdefault(what, {})[name] = one
    return found


def judged(rows):
    """Gives for each aim its text, the figure, and whether it is met."""
    added = rows[IMPORT][OURS]["cpu_ms"] - rows[ITSELF][""]["cpu_ms"]
    found = [(f"{IMPORT}: <= {IMPORT_MS} ms of CPU beyond Python itself", added, added <= IMPORT_MS)]
    for what, key, bound in AIMS:
        ratio = rows[what][OURS]["of"][key]
        found.append((f"{what}: {NAMES[key]} <= {bound} of grpcio", ratio, ratio <= bound))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=21)
    arguments = parser.parse_args()
    with harness.peer() as server:
        rows = summary(measured(server.address, arguments.rounds))
    results = {"rows": rows, "aims": judged(rows)}
    document.keep("start", results)
    print("\n".join(document.start(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
