"""The suite of packages written for grpcio; the program `run` in this folder starts it."""

import os
import re
import sys

import harness

HERE = harness.ROOT / "Tests" / "packages"
VENV = harness.ROOT / ".venv-packages"
# Python with the packages and without grpcio.
BARE = VENV / "bin" / "python"
# The ways of using.py in which each program can be run. Programs whose packages make their own channels use ours only by
# the shim.
ALL = ("shim", "beside", "grpcio")
OWN = ("shim", "grpcio")
PROGRAMS = {"otlp": OWN, "pubsub": ALL, "secrets_manager": ALL, "qdrant": OWN, "etcd": OWN, "small": ALL, "examples": ALL,
            "aio_examples": ALL}


class Packages:
    def __init__(self, suite, only_first):
        self.suite = suite
        self.only_first = only_first
        harness.generate_protos()
        site = next(VENV.glob("lib/python3*/site-packages"))
        bare = os.pathsep.join((str(harness.GENERATED), str(HERE)))
        library = str(harness.LIBRARY / "libpenstock.so")
        source = str(harness.ROOT / "bindings" / "python" / "src")
        self.bare = {"PYTHONPATH": os.pathsep.join((bare, source)), "PENSTOCK_LIBRARY": library}
        # Behind those of .venv, grpcio among them.
        self.beside = {**self.bare, "PYTHONPATH": os.pathsep.join((bare, source, str(site)))}

    def program(self, name, way, target):
        python, environment = (BARE, self.bare) if way == "shim" else (sys.executable, self.beside)
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), python, HERE / f"{name}.py", way, target]
        names = re.findall(r"^@case\n(?:async )?def (\w+)", (HERE / f"{name}.py").read_text(), re.MULTILINE)
        if self.only_first:
            if way == "grpcio":
                return
            del names[1:]
        harness.run_cases(self.suite, f"{name} {way}", command, names, limit=90)

    def run(self):
        with harness.Server([sys.executable, HERE / "server.py"], self.beside) as server:
            for name, ways in PROGRAMS.items():
                for way in ways:
                    self.program(name, way, server.address)
                self.suite.section(name)


def main(arguments):
    only_first = "--first" in arguments
    suite = harness.Suite([one for one in arguments if one != "--first"])
    with harness.workspace():
        Packages(suite, only_first).run()
    return suite.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
