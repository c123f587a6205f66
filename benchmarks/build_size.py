"""Builds the program of examples/swift/hello in a fresh folder, as a package that depends on this one by its path and on nothing
else, and tells how long that took and how large the program is. Beside it is the same program with grpc-swift-2 over NIO, which
the package of the benchmarks has.

    run build-size

Keeps its figures in benchmarks/figures, and writes docs/benchmarks.md.
"""

import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import build_peers
import document
import harness
from harness import ROOT, check

FRESH = ROOT / "build" / "bench" / "fresh"
PACKAGE = f"""// swift-tools-version: 6.2
import PackageDescription

let package = Package(
  name: "hello",
  dependencies: [.package(name: "penstock", path: "{ROOT}")],
  targets: [.executableTarget(name: "hello", dependencies: [.product(name: "Penstock", package: "penstock")])])
"""
BESIDE = "grpc-swift-hello"
REPLY = "Hello, you!"
# Symbols of this library's modules, in Swift's names, and of its C functions.
OURS = re.compile(r"\$s\d+_?C?Penstock|penstock_|cm_")


def swiftpm(verb, *words):
    """Runs SwiftPM for the fresh package; gives the seconds and the CPU seconds that it took."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = ["bash", "-c", '. "$0"; swiftpm "$@"', ROOT / "scripts" / "common.sh", verb, "--package-path", FRESH,
               "--scratch-path", FRESH / ".build", *words]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    check(done.returncode == 0, done.stdout[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.monotonic() - started, 1), "cpu_seconds": round(cpu, 1)}


def says_hello(program, target):
    done = subprocess.run([program, target], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=60, check=False)
    check(done.returncode == 0 and REPLY in done.stdout, program, done.stdout)


def stripped(program):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "stripped"
        subprocess.run([os.environ.get("STRIP", "strip"), "-o", copy, program], check=True)
        return copy.stat().st_size


def ours(program):
    """The bytes of code and data in `program` that belong to symbols of this library. Bytes with several symbols count once."""
    told = subprocess.run(["nm", "--print-size", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    sizes = {}
    for line in told.splitlines():
        address, size, kind, name = (line.split() + [""] * 3)[:4]
        if kind in tuple("tTrRdDVW") and OURS.match(name):
            sizes[address] = max(sizes.get(address, 0), int(size, 16))
    return sum(sizes.values())


def main():
    beside = build_peers.build([BESIDE])[BESIDE]
    shutil.rmtree(FRESH, ignore_errors=True)
    sources = FRESH / "Sources" / "hello"
    sources.mkdir(parents=True)
    (FRESH / "Package.swift").write_text(PACKAGE)
    shutil.copy(ROOT / "examples" / "swift" / "hello" / "main.swift", sources)
    found = {"build": {}}
    with harness.peer() as server:
        for configuration in ("debug", "release"):
            found["build"][configuration] = swiftpm("build", "-c", configuration)
            program = FRESH / ".build" / configuration / "hello"
            says_hello(program, server.address)
        found["size"] = {"Penstock": {"bytes": stripped(program), "ours": ours(program)}}
        if beside:
            says_hello(beside, server.address)
            found["size"]["grpc-swift-2 over NIO"] = {"bytes": stripped(beside), "ours": 0}
            document.keep("build-size", found)
    print("\n".join(document.build_size(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
