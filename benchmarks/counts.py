"""Prints the size of the stripped library and the instructions of a call, beside the figures that are kept.

    run counts                after `make lib peer`; under a minute on a quiet machine

No test fails because of these figures. A change that costs more than 3 % of instructions or 5 % of size says why in its
commit (CONTRIBUTING.md); a row over that is marked.
"""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import document
import instructions
from harness import LIBRARY, ROOT, workspace

CALLS = ("serial", "flight", "hops", "pingpong")
# The part by which a figure may grow without a reason in the commit.
SIZE, INSTRUCTIONS = 0.05, 0.03


def table(found):
    """The lines of the table. `found`: for each row its name, the figure now, the one that is kept, and the part by which
    it may grow."""
    cells = [[name, f"{now:,}", f"{before:,}", f"{now / before - 1:+.1%}{' (say why)' if now > before * (1 + limit) else ''}"]
             for name, now, before, limit in found]
    return document.rows(("", "now", "kept", "change"), cells)


def measured(library):
    """The rows of `table` for a build of the library."""
    total = int(subprocess.run([sys.executable, ROOT / "scripts" / "size", "--total", library / "libpenstock.so"], check=True,
                               stdout=subprocess.PIPE, text=True).stdout)
    rows = [("stripped, bytes", total, document.figures("size")["total"], SIZE)]
    before = dict(zip(instructions.SCENARIOS, document.figures("instructions")["history"][-1]["instructions"], strict=True))
    with workspace() as folder:
        bench = instructions.Bench(library)
        for what in CALLS:
            now = round(bench.measure(what, folder).total())
            rows.append((f"{instructions.SCENARIOS[what][0]}, instructions", now, before[what], INSTRUCTIONS))
    return rows


def main():
    argparse.ArgumentParser(prog="benchmarks/run counts", formatter_class=argparse.RawDescriptionHelpFormatter,
                            description=__doc__).parse_args()
    print("\n".join(table(measured(LIBRARY))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
