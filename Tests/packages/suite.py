"""The suite of packages written for grpcio; the program `run` in this folder starts it."""

import json
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
            "aio_examples": ALL, "telemetry": ("shim",)}

# The ways of the first cases, of programs for which it is not the first way alone.
FIRST = {"pubsub": ("shim", "beside"), "small": ("beside",)}
OURS = (("--penstock",),)
# The cases of grpcio_client.py that take long, or that a server does not have.
LARGE = {"grpcio": ("large_messages", "health", "error_details", "greeter"),
         "peer": ("large_messages",)}


def cases_of(file):
    return re.findall(r"^@case\n(?:async )?def (\w+)", file.read_text(), re.MULTILINE)


def settings(environment):
    return [f"{key}={value}" for key, value in environment.items()]


class Packages:
    def __init__(self, suite, only_first):
        self.suite = suite
        self.only_first = only_first
        harness.generate_protos()
        site = next(VENV.glob("lib/python3*/site-packages"))
        bare = os.pathsep.join((str(harness.GENERATED), str(HERE), str(harness.ROOT / "Tests" / "interop")))
        library = str(harness.LIBRARY / "libpenstock.so")
        source = str(harness.ROOT / "bindings" / "python" / "src")
        self.bare = {"PYTHONPATH": os.pathsep.join((bare, source)), "PENSTOCK_LIBRARY": library}
        # Behind those of .venv, grpcio among them.
        self.beside = {**self.bare, "PYTHONPATH": os.pathsep.join((bare, source, str(site)))}

    def program(self, name, way, target):
        python, environment = (BARE, self.bare) if way == "shim" else (sys.executable, self.beside)
        command = ["env", *settings({**environment, **self.secure}), python, HERE / f"{name}.py", way, target]
        names = cases_of(HERE / f"{name}.py")
        if self.only_first:
            del names[1:]
        harness.run_cases(self.suite, f"{name} {way}", command, names, limit=90)

    def interop(self):
        """gRPC's interop cases by grpcio's names, against grpcio and the peer; with grpcio's own client for asyncio, too."""
        folder = harness.ROOT / "Tests" / "interop"
        for label, start in (("grpcio", lambda: harness.grpcio("--tap")), ("peer", harness.peer)):
            with start() as server:
                for name, without, ways in (("grpcio_client", LARGE[label], OURS), ("aio_client", (), (*OURS, ()))):
                    cases = [one for one in cases_of(folder / f"{name}.py") if one not in without]
                    for way in ways if not self.only_first else OURS:
                        command = ["env", *settings(self.beside), sys.executable, folder / f"{name}.py",
                                   "--target", server.address, *way]
                        harness.run_cases(self.suite, f"{name}-{label} {' '.join(way)}", command,
                                          cases[:1] if self.only_first else cases, limit=90)
        self.suite.section("interop")

    def no_grpcio(self):
        with harness.Process([BARE, "-c", "import grpc"]) as process:
            status, lines = process.wait()
            harness.check_equal((status, lines[-1]), (1, "ModuleNotFoundError: No module named 'grpc'"))

    def run(self, folder):
        self.suite.run("no grpcio in .venv-packages", self.no_grpcio)
        self.interop()
        certificates = harness.Certificates(folder)
        files = [certificates.path("server.pem"), certificates.path("server.key")]
        with harness.Server([sys.executable, HERE / "server.py", *files], self.beside) as server:
            self.secure = {"PENSTOCK_TLS": json.loads(server.seen[-1])["tls"], "PENSTOCK_CA": certificates.path("ca.pem")}
            for name, ways in PROGRAMS.items():
                for way in FIRST.get(name, ways[:1]) if self.only_first else ways:
                    self.program(name, way, server.address)
                self.suite.section(name)


def main(arguments):
    only_first = "--first" in arguments
    suite = harness.Suite([one for one in arguments if one != "--first"])
    with harness.workspace() as folder:
        Packages(suite, only_first).run(folder)
    return suite.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
