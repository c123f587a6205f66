"""The suites that run on a mutant: those that reach its place, the cheapest first."""

import concurrent.futures
import importlib.machinery
import importlib.util
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time

# A line of a suite's output that says that a test failed: no need to wait for the rest.
FAILURE = re.compile(r"^\S*(FAILED|not ok|\[91m)|^FAILED|recorded an issue|^F+$|: FAILED")
# The suites, and the seconds that each may take at least. A suite that takes longer, and more than three times as long as
# without a mutant, hangs, which counts as noticed.
LIMITS = {"swift": 90, "laws": 120, "python": 120, "faults": 500, "interop": 400, "c": 90,
          "connect": 400, "proxies": 400, "matrix": 300, "network": 200, "failing": 500}
# Those that run in parts: a part is a stage of its own, named "c PROGRAM", "python FILE" or "swift SUITE", so that a mutant
# is tried only by what reaches it.
IN_PARTS = ("c", "python", "swift")
# The limit of a suite in seconds as long as its usual time is not known.
FIRST_LIMIT = 1800
# Suites whose program is not Tests/NAME/run.
PROGRAMS = {"failing": "Tests/memory/failing"}


class Stages:
    def __init__(self, tree, suites):
        self.tree = tree
        self.suites = suites
        self.workers = queue.SimpleQueue()
        # The seconds that each stage or C program takes, and the mutants that it reaches.
        self.seconds = {}
        self.reached = {}
        # Both, for a later run with the same build.
        self.record = tree.parent / "baseline.json"
        self.lock = threading.Lock()

    def check_baseline(self, jobs, known):
        """Makes a folder for each job, so that the jobs build and write apart, and runs each stage without a mutant; if the
        result of the same build is `known`, that is read. Returns the first stage that fails, or None."""
        for job in range(jobs):
            folder = self.tree.parent / f"job{job}"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.tree, folder, symlinks=True, ignore=shutil.ignore_patterns(".build", ".git"))
            c_run = self.c_run(folder)
            c_run.certificates()
            c_run.build("shipped", [])
            self.workers.put(folder)
        if known and self.record.exists():
            for name, (seconds, reached) in json.loads(self.record.read_text()).items():
                self.seconds[name], self.reached[name] = seconds, set(reached)
        names = [name for name in self.names(folder) if name not in self.reached]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return next((name for name, fails in zip(names, pool.map(self.try_sound, names)) if fails), None)

    def names(self, folder):
        """All stages."""
        listed = subprocess.run([self.swift_tests(), "--testing-library", "swift-testing", "--list-tests"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        found = [name for name in LIMITS if name not in IN_PARTS]
        found += sorted({f"swift {line.partition('/')[0]}" for line in listed.split()})
        found += [f"c {path.name}" for path in self.programs(folder)]
        found += [f"python {path.name}" for path in sorted((folder / "bindings/python/tests").glob("test_*.py"))]
        return [name for name in found if self.suite(name) in self.suites]

    @staticmethod
    def suite(name):
        return name.partition(" ")[0]

    def swift_tests(self):
        return self.tree / ".build/full/debug/penstockPackageTests.xctest"

    def try_sound(self, name):
        """Runs a stage without an active mutant, and notes which mutants it reaches."""
        marks = self.tree.parent / f"reached {name}"
        marks.write_bytes(bytes(4096))
        folder = self.workers.get()
        started = time.monotonic()
        try:
            fails = self.run_stage(name, folder, 0, marks)
        finally:
            self.workers.put(folder)
        if not fails:
            with self.lock:
                self.seconds[name] = time.monotonic() - started
                self.reached[name] = {number for number, mark in enumerate(marks.read_bytes()) if mark}
                known = {each: (self.seconds[each], sorted(reached)) for each, reached in self.reached.items()}
                self.record.write_text(json.dumps(known))
        return fails

    @staticmethod
    def programs(folder):
        return sorted(path for path in (folder / "build" / "c" / "shipped").iterdir()
                      if os.access(path, os.X_OK) and path.is_file() and not path.suffix)

    @staticmethod
    def c_run(folder):
        path = str(folder / "Tests" / "c" / "run")
        spec = importlib.util.spec_from_loader("c_run", importlib.machinery.SourceFileLoader("c_run", path))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def first_to_notice(self, mutant):
        """Runs the stages that reach the mutant until one notices it. Returns the name of that stage, or None. A stage that
        exceeds its limit, or fails without naming a test, says so: on a busy machine that may be no proof."""
        names = [name for name in self.reached
                 if self.suite(name) in self.suites and mutant.number in self.reached[name]]
        folder = self.workers.get()
        try:
            for name in sorted(names, key=self.seconds.__getitem__):
                fails = self.run_stage(name, folder, mutant.number)
                if fails:
                    return f"{name} ({fails})"
            return None
        finally:
            self.workers.put(folder)

    def run_stage(self, name, folder, number, marks=None):
        """Runs a stage with the mutant `number`; 0: without one. Returns how it fails, or None."""
        environment = dict(os.environ, PENSTOCK_MUTANT=str(number), PENSTOCK_SCENARIOS="2000",
                           PENSTOCK_PEER=str(folder / "build" / "bin" / "penstock-peer"), PYTHONDONTWRITEBYTECODE="1")
        if marks:
            environment["PENSTOCK_MUTANTS_REACHED"] = str(marks)
        if name.startswith("c "):
            environment = {**self.c_run(folder).environment("shipped"), **environment}
            command = [folder / "build" / "c" / "shipped" / name[2:]]
        elif name.startswith("swift "):
            command = [self.swift_tests(), "--testing-library", "swift-testing", "--filter", f"^{re.escape(name[6:])}/"]
        elif name.startswith("python "):
            # Status 5: the file has no test but those of another suite.
            command = ["bash", "-c", '. scripts/common.sh; export PENSTOCK_LIBRARY=$ROOT/build/lib/libpenstock.so '
                       'PYTHONPATH=$ROOT/bindings/python/src; cd bindings/python; '
                       f'"$ROOT/.venv/bin/python" -m pytest -x -q -p no:cacheprovider tests/{name[7:]} || [ $? = 5 ]']
        else:
            command = [PROGRAMS.get(name, f"Tests/{name}/run")]
        limit = max(LIMITS[self.suite(name)], 3 * self.seconds[name]) if number else FIRST_LIMIT
        return self.fails(command, folder, environment, limit)

    @staticmethod
    def fails(command, folder, environment, limit):
        process = subprocess.Popen([str(part) for part in command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   start_new_session=True)
        late = threading.Event()

        def end():
            late.set()
            Stages.end(process)

        timer = threading.Timer(limit, end)
        timer.daemon = True
        timer.start()
        said = next((line for line in process.stdout if FAILURE.search(line)), None)
        if said:
            Stages.end(process)
        status = process.wait()
        timer.cancel()
        Stages.end(process)
        if said:
            return said.strip()[:100]
        if late.is_set():
            return f"a hang: over {limit:.0f} s"
        return f"status {status}" if status else None

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
