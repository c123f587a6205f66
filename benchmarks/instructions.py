"""Instructions per call by callgrind, split by layer; `profile` in this folder starts this program.

A program makes calls on one thread, in a short run and in a long one. The difference of their instructions, divided by the
number of calls that the long run made more, is the cost of a call. It includes the client's instructions, but not those of
the kernel or of the server, which is another process. Unlike a time, this count repeats within 0.5 %, even on a busy
machine. For streams of 64 KiB it varies more, because the sizes of reads and writes vary; and a large copy counts as about
one instruction for each byte, because callgrind counts a processor's string instruction once for each byte.
"""

import argparse
import collections
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import callgrind
import document
import harness
from harness import ROOT

SWIFT = os.environ.get("SWIFT", "swift")
KIB64 = 65536
# For each scenario by name: its title, the client's arguments, and the calls of the short and of the long run.
SCENARIOS = {
    "serial": ("unary, serial", ["serial"], 200, 1200),
    "flight": ("unary, 100 in flight", ["flight", "--in-flight", 100], 1000, 4000),
    "hops": ("the same, 8 interceptors", ["flight", "--in-flight", 100, "--interceptors", 8], 1000, 4000),
    "pingpong": ("ping-pong", ["pingpong"], 200, 1200),
    "up": ("64 KiB up", ["up", "--bytes", KIB64], 200, 800),
    "down": ("64 KiB down", ["down", "--bytes", KIB64], 200, 800),
}
ALLOCATION = re.compile(r"(_int_)?(malloc|free|calloc|realloc|memalign)|malloc_consolidate|unlink_chunk|sysmalloc|tcache"
                        r"|posix_memalign|aligned_alloc|_mid_memalign|systrim|cm_|(\$es\d+)?swift_(alloc|dealloc|slow|initStack)")
COPY = re.compile(r"_*(mem|str|stp)(cpy|move|set|cmp|chr|len|rchr|ncmp|nlen|casecmp)|_*rawmem")
COUNT = re.compile(r"destroy$|(\$es\d+)?swift_(nonatomic_)?(retain|release|bridgeObject|isUnique|setDeallocating|tryRetain"
                   r"|unowned|weak)")
MODULES = {
    "PenstockClient": "transport", "PenstockTickets": "transport", "PenstockTransport": "transport",
    "PenstockFraming": "transport", "PenstockHTTP": "transport", "PenstockLink": "transport", "PenstockLoop": "transport",
    "PenstockCall": "call machine", "PenstockWire": "wire", "PenstockABI": "ABI", "PenstockJSON": "ABI",
    "PenstockReady": "ready-made interceptors", "PenstockChannel": "channel", "PenstockNames": "channel",
}
LAYERS = document.LAYERS


def layer(where):
    """The layer to which a function belongs, by its name and the object file that contains it."""
    path, function = where
    base = path.rsplit("/", 1)[-1]
    name = function.split("'")[0]
    if ALLOCATION.match(name) and base.startswith(("libc.", "libpenstock", "vgpreload")):
        return "malloc and free"
    if base.startswith("libnghttp2"):
        return "nghttp2"
    if base.startswith(("libssl", "libcrypto")):
        return "TLS"
    if base.startswith("libpenstock"):
        if COUNT.match(name):
            return "reference counts"
        if name.startswith("penstock_"):
            return "ABI"
        # Code of the Swift library that is specialised for one of our types counts as ours; its name begins with our module.
        module = re.match(r"\$e(\d+)(Penstock\w+)", name)
        if module:
            return MODULES.get(module.group(2)[:int(module.group(1))], "transport")
        return "Swift library" if name.startswith("$e") else "system library"
    if base.startswith(("libc.", "ld-", "libpthread", "libm.", "libz.", "libjansson")):
        return "memory copies" if COPY.match(name) else "system library"
    return "the program" if base == "counted_client" else "system library"


class Bench:
    def __init__(self, library, protocol="grpc"):
        self.protocol = protocol
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(library)}
        self.program = harness.build_c("counted_client", [ROOT / "benchmarks" / "counted_client.c"], optimize="-O2")
        self.target = harness.peer("--stream-window", str(1 << 30)).address

    def measure(self, what, folder):
        _, arguments, few, many = SCENARIOS[what]
        command = [self.program, "--target", self.target, "--protocol", self.protocol, "--what", *arguments, "--calls"]
        runs = [callgrind.run([*command, calls], folder / "callgrind", self.environment) for calls in (few, many)]
        return runs[1].per_call(runs[0], many - few)


def demangled(names):
    """The readable form of each mangled Swift name; empty if there is no Swift toolchain."""
    swift = shutil.which(SWIFT)
    if not swift:
        return {}
    done = subprocess.run([swift, "demangle", "--simplified", "--compact"], input="\n".join(names), text=True,
                          stdout=subprocess.PIPE, check=False)
    return dict(zip(names, done.stdout.splitlines(), strict=False)) if done.returncode == 0 else {}


def kept(found):
    """The instructions of each scenario by layer, as benchmarks/figures/instructions.json keeps them."""
    sums = {SCENARIOS[what][0]: dict.fromkeys([*LAYERS, "all"], 0) for what in found}
    for what, profile in found.items():
        here = sums[SCENARIOS[what][0]]
        for where, count in profile.own.items():
            here[layer(where)] += count
        here["all"] = profile.total()
    return {name: {key: round(count) for key, count in here.items()} for name, here in sums.items()}


def print_functions(profile, limit):
    top = profile.own.most_common(limit)
    words = demangled([where[1] for where, _ in top])
    for where, count in top:
        times = sum(calls for (_, callee), calls in profile.calls.items() if callee == where)
        print(f"{count:>9,.1f}  {times:>8.2f} times  {layer(where):<17} {words.get(where[1], where[1])}")


def print_callers(profile, pattern, limit):
    """Prints the functions that call a function whose name matches `pattern`, and how often each does so per RPC."""
    wanted = re.compile(pattern)
    calls = collections.Counter()
    for (caller, callee), count in profile.calls.items():
        if wanted.search(callee[1]) and not wanted.search(caller[1]):
            calls[caller[1], callee[1]] += count
    top = [(key, count) for key, count in calls.most_common(limit) if count >= 0.005]
    words = demangled([caller for (caller, _), _ in top])
    print(f"{sum(calls.values()):>9.2f} times per call in all")
    for (caller, callee), count in top:
        print(f"{count:>9.2f}  {callee:<28} from {words.get(caller, caller)}")


def append(title, found):
    """Keeps the counts of this run, and adds them as a row to the history there."""
    told = document.figures("instructions")
    told["layers"] = kept(found)
    totals = [round(found[what].total()) for what in SCENARIOS]
    told["history"].append({"date": str(datetime.date.today()), "title": title, "instructions": totals})
    document.keep("instructions", told)


def main():
    parser = argparse.ArgumentParser(
        prog="benchmarks/profile", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog="scenarios: " + ", ".join(f"{key} ({value[0]})" for key, value in SCENARIOS.items()) + """

examples, after `make lib peer`:
  benchmarks/profile                                all, as a table (30 s)
  benchmarks/profile flight                         one of them (5 s)
  benchmarks/profile flight --functions 40          the dearest functions: instructions and calls, per call
  benchmarks/profile flight --callers 'malloc|realloc|allocObject'  who allocates, and how often
  benchmarks/profile flight --callers 'swift_(retain|release)'      who counts references
  benchmarks/profile flight --library ../other/build/lib            another build of the library
  benchmarks/profile --append "Calls in one slab"   a row for the history in benchmarks/figures""")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all without")
    parser.add_argument("--functions", type=int, metavar="N", help="also the N dearest functions")
    parser.add_argument("--callers", metavar="REGEX", help="also who calls the functions that it finds")
    parser.add_argument("--library", type=pathlib.Path, default=harness.LIBRARY, help="the folder of libpenstock.so")
    parser.add_argument("--protocol", default="grpc", help="over HTTP/2: grpc, grpc-web, grpc-web-text or connect")
    parser.add_argument("--append", metavar="TITLE",
                        help="of all scenarios: keeps the figures, and adds a row to their history")
    arguments = parser.parse_args()
    unknown = [what for what in arguments.scenarios if what not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}")
    if arguments.append and (arguments.scenarios or arguments.protocol != "grpc"):
        parser.error("--append is of all scenarios of gRPC")
    found = {}
    with harness.workspace() as folder:
        bench = Bench(arguments.library.resolve(), arguments.protocol)
        for what in arguments.scenarios or SCENARIOS:
            found[what] = bench.measure(what, folder)
    print("\n".join(document.layers(kept(found))))
    for what, profile in found.items():
        if arguments.functions:
            print(f"\n{SCENARIOS[what][0]}, instructions per call:")
            print_functions(profile, arguments.functions)
        if arguments.callers:
            print(f"\n{SCENARIOS[what][0]}, calls of {arguments.callers}:")
            print_callers(profile, arguments.callers, 40)
    if arguments.append:
        append(arguments.append, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
