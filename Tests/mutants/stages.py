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
SWIFT_SLOW = "PenstockLoopTests|PenstockLinkTests|PenstockHTTPTests|PenstockTransportTests"
SWIFT_FAST = "PenstockWireTests|PenstockNamesTests|PenstockCallTests|PenstockChannelTests"
# The suites, and the seconds that each may take at least. A suite that takes longer, and more than three times as long as
# without a mutant, hangs, which counts as noticed.
LIMITS = {"swift-fast": 90, "swift-transport": 300, "laws": 120, "python": 400, "faults": 500, "interop": 400, "c": 90,
          "connect": 400, "proxies": 400, "matrix": 300, "network": 200, "failing": 500}
# The limit of a suite in seconds as long as its usual time is not known.
FIRST_LIMIT = 1800
# Suites whose program is not Tests/NAME/run.
PROGRAMS = {"failing": "Tests/memory/failing"}


class Stages:
    def __init__(self, tree):
        self.tree = tree
        self.workers = queue.SimpleQueue()
        # The seconds that each stage or C program takes, and the mutants that it reaches.
        self.seconds = {}
        self.reached = {}

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
        record = self.tree.parent / "baseline.json"
        if known and record.exists():
            for name, (seconds, reached) in json.loads(record.read_text()).items():
                self.seconds[name], self.reached[name] = seconds, set(reached)
            return None
        record.unlink(missing_ok=True)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            names = [name for name in LIMITS if name != "c"] + [f"c {path.name}" for path in self.programs(folder)]
            wrong = next((name for name, fails in zip(names, pool.map(self.try_sound, names)) if fails), None)
        if not wrong:
            record.write_text(json.dumps({name: (self.seconds[name], sorted(self.reached[name])) for name in names}))
        return wrong

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
        self.seconds[name] = time.monotonic() - started
        self.reached[name] = {number for number, mark in enumerate(marks.read_bytes()) if mark}
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
        names = [name for name in self.reached if mutant.number in self.reached[name]]
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
        elif name.startswith("swift"):
            tests = SWIFT_FAST if name == "swift-fast" else SWIFT_SLOW
            command = [self.tree / ".build/full/debug/penstockPackageTests.xctest", "--testing-library", "swift-testing",
                       "--filter", tests]
        elif name == "python":
            command = ["bash", "-c", '. scripts/common.sh; export PENSTOCK_LIBRARY=$ROOT/build/lib/libpenstock.so '
                       'PYTHONPATH=$ROOT/bindings/python/src; cd bindings/python; '
                       '"$ROOT/.venv/bin/python" -m pytest -x -q -p no:cacheprovider tests']
        else:
            command = [PROGRAMS.get(name, f"Tests/{name}/run")]
        limit = max(LIMITS[name.split()[0]], 3 * self.seconds[name]) if number else FIRST_LIMIT
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
