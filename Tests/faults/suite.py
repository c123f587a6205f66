"""The fault suite; `run` in this folder starts it."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "memory"))

import harness
import preload
from local import Local
from scripted import Scripted


class Suite(Local, Scripted):
    """All tests of faults."""


def main():
    if not (harness.PEER.exists() and (harness.LIBRARY / "libpenstock.so").exists()):
        print("build/lib/libpenstock.so and build/bin/penstock-peer are needed: make lib peer")
        print("0 passed, 1 failed")
        return 1
    mode = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in ("valgrind", *preload.NAMES) else None
    suite = harness.Suite(sys.argv[2 if mode else 1:])
    with harness.workspace() as folder:
        if mode == "valgrind":
            faults = Suite(suite, folder)
            faults.valgrind()
            faults.section("valgrind")
        else:
            faults = Suite(suite, folder, mode)
            faults.local()
            faults.section("faults without a script")
            faults.scripts()
            faults.section("scripts")
            faults.over_protocols()
            faults.section("scripts over other protocols")
            faults.crowds()
            faults.section("a hundred calls at once")
            faults.over_tls()
            faults.section("scripts within TLS")
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
