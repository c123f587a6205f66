"""Makes scripts/hot-functions.txt: a list of the functions that calls run through, in an order that keeps functions together
that call one another. The linker takes the order from this list. `benchmarks/profile --order` writes it.

callgrind tells how often one function calls another. The linker's own algorithm (lld's cache-directed sort) makes the order:
it is given those counts, and empty functions with the names and sizes of ours.
"""

import collections
import pathlib
import re
import shutil
import subprocess

from harness import ROOT

LIST = ROOT / "scripts" / "hot-functions.txt"
# A function that is called less often than this per RPC is not in the list, and stays where it is in the library.
LEAST = 0.1
HEAD = """\
# The functions that calls run through; the linker puts them side by side in this order. `benchmarks/profile --order`
# writes this list; docs/performance-notes.md explains its purpose. Names of functions that no longer exist do no harm.
"""


def name_of(function):
    """The symbol of a name of callgrind, which adds 'N to recursive calls; empty for a function without a symbol, which
    callgrind names by its address."""
    name = function.split("'")[0]
    return "" if name.startswith("0x") else name


def counts(profiles):
    """How often one of the library's functions calls another, per call, over all profiles."""
    found = collections.Counter()
    for profile in profiles:
        for (caller, callee), times in profile.calls.items():
            names = name_of(caller[1]), name_of(callee[1])
            if times >= LEAST and "libpenstock" in callee[0] and all(names):
                # A caller outside the library has no place in the order, so this counts as a call of the function by
                # itself.
                found[names if "libpenstock" in caller[0] else (names[1], names[1])] += times
    return found


def sizes(library):
    row = re.compile(r"[0-9a-f]+ ([0-9a-f]+) \w (\S+)$")
    lines = subprocess.run(["nm", "-S", "--defined-only", str(library)], check=True, stdout=subprocess.PIPE, text=True)
    return {match[2]: int(match[1], 16) for match in map(row.match, lines.stdout.splitlines()) if match}


def sort(edges, bytes_of, folder, linker):
    """The functions of `edges` that have a size, in the order in which lld would put them."""
    edges = {pair: times for pair, times in edges.items() if bytes_of.keys() >= set(pair)}
    functions = sorted({name for pair in edges for name in pair})
    files = {kind: pathlib.Path(folder, f"order.{kind}") for kind in ("s", "o", "edges", "so")}
    files["s"].write_text("".join(
        f'.section ".text.{name}", "ax"\n.balign 16\n.globl "{name}"\n"{name}":\n.zero {bytes_of[name]}\n'
        for name in functions))
    files["edges"].write_text("".join(
        f"{caller} {callee} {max(round(times * 100), 1)}\n" for (caller, callee), times in sorted(edges.items())))
    subprocess.run(["cc", "-c", "-o", files["o"], files["s"]], check=True)
    subprocess.run([linker, "-shared", "--call-graph-profile-sort=cdsort",
                    f"--call-graph-ordering-file={files['edges']}", "-o", files["so"], files["o"]], check=True)
    laid = subprocess.run(["nm", "-n", "--defined-only", files["so"]], check=True, stdout=subprocess.PIPE, text=True)
    return [line.split()[2] for line in laid.stdout.splitlines() if line.split()[1] == "T"]


def write(profiles, library, folder, swift):
    """Writes the list of functions; returns how many names it has."""
    linker = pathlib.Path(shutil.which(swift)).resolve().with_name("ld.lld")
    names = sort(counts(profiles), sizes(library), folder, linker)
    LIST.write_text(HEAD + "".join(f"{name}\n" for name in names))
    return len(names)
