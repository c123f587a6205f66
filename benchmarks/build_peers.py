"""Builds the other clients and servers of the benchmarks, in build/bench/: the programs in C++, C and Swift beside
this file.

`build()` gives their paths by name, or None for a program that can't be built here, and prints the reason. A program is
built again only if its sources have changed; a file beside it has their digest. The first build of the clients in Swift takes
5 to 10 minutes.
"""

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BUILT = ROOT / "build" / "bench"
WARNINGS = ["-O2", "-g", "-Wall", "-Wextra", "-Werror"]
# The libraries that libpenstock is linked with. nghttp2_first is linked with them, too, so that loading them costs
# both programs the same.
LIBRARIES = ["-Wl,--no-as-needed", "-lnghttp2", "-lssl", "-lcrypto", "-ljansson", "-lz"]


class Missing(Exception):
    """A program can't be built: the text names the missing tool and its package, or has the compiler's output."""


def need(program, package):
    if not shutil.which(program):
        raise Missing(f"{program} is not there (Debian: {package})")


def compiled(command, output):
    """Runs the compiler `command`. The new program replaces the one at `output` only if that has succeeded."""
    new = output.with_suffix(".new")
    done = subprocess.run([*command, "-o", str(new)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"the compiler says: {done.stdout[-2000:]}")
    new.replace(output)


def with_grpcpp(name, sources):
    compiler = os.environ.get("CXX", "c++")
    need(compiler, "g++")
    need("pkg-config", "pkg-config")
    flags = subprocess.run(["pkg-config", "--libs", "grpc++"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                           check=False)
    if flags.returncode != 0:
        raise Missing("grpc++ is not there (Debian: libgrpc++-dev; scripts/doctor --bench installs it)")
    # pkg-config names many libraries; only those that are used are linked.
    compiled([compiler, "-std=c++20", *WARNINGS, str(sources[0]), "-Wl,--as-needed", *shlex.split(flags.stdout), "-pthread"],
             BUILT / name)


def in_c(name, sources, *more):
    compiler = os.environ.get("CC", "cc")
    need(compiler, "gcc")
    compiled([compiler, "-std=c11", "-D_GNU_SOURCE", *WARNINGS, "-Wpedantic", f"-I{ROOT / 'include'}", str(sources[0]), *more],
             BUILT / name)


def bare(name, sources):
    in_c(name, sources, *(str(path) for path in sources if path.suffix == ".c" and path != sources[0]), "-lssl", "-lcrypto",
         "-pthread")


def with_swift(name, sources):
    del sources
    need(os.environ.get("SWIFT", "swift"), "none; https://www.swift.org/install/linux")
    print(f"{name}: building it with grpc-swift-2, some minutes the first time; its log is build/bench/{name}.log", flush=True)
    scratch = "build/bench/swift"
    script = (f". scripts/common.sh; swiftpm build --package-path benchmarks/swift --scratch-path {scratch} "
              f"-c release --product {name}")
    log = BUILT / f"{name}.log"
    with log.open("w") as output:
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, stdout=output,
                              stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise Missing(f"SwiftPM says: {log.read_text()[-1500:]}")
    shutil.copy(ROOT / scratch / "release" / name, BUILT / f"{name}.new")
    (BUILT / f"{name}.new").replace(BUILT / name)


# The sources of the clients in Swift, which have the library inside.
SWIFT = ["swift/Package.swift", "swift/Sources/*/*.swift", "../Package.swift", "../Sources/**/*.swift",
         "../Sources/**/*.h", "../include/penstock/*.h"]
# For each program by name: the function that builds it, and its sources.
PROGRAMS = {
    "grpcpp_client": (with_grpcpp, ["grpcpp_client.cc"]),
    "grpcpp_server": (with_grpcpp, ["grpcpp_server.cc"]),
    "grpcpp_interceptors": (with_grpcpp, ["grpcpp_interceptors.cc"]),
    "nghttp2_first": (lambda name, sources: in_c(name, sources, *LIBRARIES), ["nghttp2_first.c", "first_call.h"]),
    "penstock_first": (lambda name, sources: in_c(name, sources, "-ldl"),
                       ["penstock_first.c", "first_call.h", "../include/penstock/*.h"]),
    "cycle.so": (lambda name, sources: in_c(name, sources, "-shared", "-fPIC", "-ldl"), ["cycle.c"]),
    "bare": (bare, ["bare.c", "bare_*.c", "bare*.h"]),
    "bare_http1": (in_c, ["bare_http1.c"]),
    "grpc-swift-client": (with_swift, SWIFT),
    "penstock-swift-client": (with_swift, SWIFT),
    "grpc-swift-hello": (with_swift, SWIFT),
}


def build(names=None):
    """Builds the programs, and gives their paths by name. None: a program can't be built, and stdout has the reason."""
    BUILT.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in names or PROGRAMS:
        function, patterns = PROGRAMS[name]
        sources = [path for pattern in patterns for path in sorted(HERE.glob(pattern))]
        program, stamp = BUILT / name, BUILT / f"{name}.sources"
        found[name] = program
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        if program.exists() and stamp.exists() and stamp.read_text() == digest:
            continue
        try:
            function(name, sources)
            stamp.write_text(digest)
        except Missing as why:
            print(f"{name} is left out: {why}", flush=True)
            found[name] = None
    return found


if __name__ == "__main__":
    sys.exit(0 if all(build(sys.argv[1:] or None).values()) else 1)
