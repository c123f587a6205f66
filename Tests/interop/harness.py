"""Functions and classes that the suites with servers share: to count tests, to end processes when their test ends, to build
programs and to make certificates.

A test waits for a process's output or for a condition, with a time limit. Nothing else sleeps here.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
STYLES = ("blocking", "callback", "thread", "host", "host-callback")  # the styles of interop_client
PEER = pathlib.Path(os.environ.get("PENSTOCK_PEER", BUILD / "bin" / "penstock-peer"))
LIBRARY = pathlib.Path(os.environ.get("PENSTOCK_LIBRARY_DIR", BUILD / "lib"))
GENERATED = BUILD / "interop"
VALGRIND = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=definite,indirect",
            "--errors-for-leak-kinds=definite,indirect", "--child-silent-after-fork=yes"]


class Failure(Exception):
    """A check that did not hold."""


def check(holds, *why):
    if not holds:
        raise Failure(" ".join(str(part) for part in why))


def check_equal(found, expected, what=""):
    check(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def wait_for(condition, *what, limit=90):
    """Waits until `condition` returns something true. `what` describes the condition if the wait fails; a function in it is
    called for its result then."""
    until = time.monotonic() + limit
    while not condition():
        if time.monotonic() >= until:
            check(False, f"not within {limit} s:", *(part() if callable(part) else part for part in what))
        # The pause between two looks at the condition.
        time.sleep(0.005)


class Suite:
    """Counts tests, and ends with the line that scripts/check reads."""

    def __init__(self, patterns):
        self.passed = self.failed = self.skipped = 0
        self.patterns = patterns
        self.failures = []
        self.lock = threading.Lock()  # for tests that run at once
        self.started = time.monotonic()
        self.part = self.started

    def wants(self, name):
        return not self.patterns or any(re.search(pattern, name) for pattern in self.patterns)

    def note(self, name, why=None):
        """Notes that a test has passed or failed; a failure is printed, shortened to a screen."""
        with self.lock:
            if why is None:
                self.passed += 1
                return
            self.failed += 1
            why = str(why)
            self.failures.append(f"FAILED {name}: {why if len(why) < 800 else why[:800] + ' ...'}")
            print(self.failures[-1], flush=True)

    def run(self, name, function, *arguments):
        if not self.wants(name):
            return None
        try:
            result = function(*arguments)
        except Failure as failure:
            self.note(name, failure)
        except Exception as error:  # noqa: BLE001 - a broken test is a failed one.
            self.note(name, f"{type(error).__name__}: {error}")
        else:
            self.note(name)
            return result
        return None

    def there(self, name, found):
        """Whether the program `name` was found. If not, its tests are skipped; with CI=true this is a failure."""
        if found or not self.wants(name):
            return bool(found)
        absent = f"{name} is not there: scripts/doctor --check or scripts/setup-tests installs it"
        if os.environ.get("CI") == "true":
            self.note(name, absent)
        else:
            print(f"skipped: {absent}")
            self.skipped += 1
        return False

    def section(self, title):
        now = time.monotonic()
        print(f"{title}: {now - self.part:.1f} s, {self.passed} passed so far, {self.failed} failed", flush=True)
        self.part = now

    def end(self):
        if self.failures:
            print("\n".join(["", *self.failures]))
        print(f"{time.monotonic() - self.started:.1f} s")
        print(f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else ""))
        return 1 if self.failed else 0


class Process:
    """A program with pipes. `line` waits for a line that it prints; the end of the `with` block ends the program."""

    living: typing.ClassVar[set] = set()

    def __init__(self, command, env=None):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARY), "PYTHONPATH": str(GENERATED),
                       "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
        self.command = [str(part) for part in command]
        self.popen = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, env=environment, text=True, errors="replace")
        Process.living.add(self)
        self.lines = queue.Queue()
        self.seen = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.popen.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def line(self, wanted=lambda line: True, limit=60):
        """The next line for which `wanted` gives true; None at the end of the output."""
        until = time.monotonic() + limit
        while True:
            try:
                line = self.lines.get(timeout=max(until - time.monotonic(), 0.01))
            except queue.Empty:
                raise Failure(f"{self.name} has not said what was waited for: {self.seen[-5:]}") from None
            if line is None:
                self.lines.put(None)
                return None
            self.seen.append(line)
            if wanted(line):
                return line

    def told(self, limit=60, **wanted):
        """The next line of JSON that has these keys, with these values unless they are `...`."""
        found = {}

        def fits(line):
            if not line.startswith("{"):
                return False
            try:
                found["value"] = json.loads(line)
            except ValueError:
                return False
            return all(key in found["value"] and value in (..., found["value"][key])
                       for key, value in wanted.items())

        check(self.line(fits, limit) is not None, f"{self.name} ended without {wanted}: {self.seen[-5:]}")
        return found["value"]

    def say(self, text=""):
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.write(text + "\n")
            self.popen.stdin.flush()

    @property
    def name(self):
        return pathlib.Path(self.command[0]).name

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, limit=180):
        """Waits until the process has ended. Gives its exit status and everything that it has printed."""
        try:
            status = self.popen.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failure(f"{' '.join(self.command)} has not ended after {limit} s: {self.rest()[-5:]}") from None
        return status, self.rest()

    def rest(self):
        self.reader.join(5)
        while not self.lines.empty():
            line = self.lines.get()
            if line is not None:
                self.seen.append(line)
        return self.seen

    def end(self):
        if self.popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.popen.send_signal(signal.SIGCONT)
                self.popen.terminate()
            try:
                self.popen.wait(5)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        # Only now, when the process has ended: before this point a signal handler still has to find and end
        # it.
        Process.living.discard(self)
        with contextlib.suppress(OSError):
            self.popen.stdin.close()
        self.reader.join(5)
        self.popen.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def end_all(*_):
    for process in list(Process.living):
        process.end()
    sys.exit(1)


class Server(Process):
    """A server process, which prints {"address": ...} when it listens."""

    def __init__(self, command, env=None):
        super().__init__(command, env)
        try:
            self.address = self.told(address=...)["address"]
        except Failure:
            self.end()
            raise


def grpcio(*options):
    return Server([sys.executable, ROOT / "Tests" / "interop" / "grpcio_server.py", *options])


def channel_options(tls=False, **more):
    return json.dumps({"tls": tls, **more})


def peer(*options):
    return Server([PEER, "--exit-with-stdin", *options])


# ---- Builds ----


@contextlib.contextmanager
def alone():
    """Holds a lock, so that only one suite at a time builds in build/interop."""
    GENERATED.mkdir(parents=True, exist_ok=True)
    with open(GENERATED / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_c(name, sources, includes=(), optimize="-O1"):
    """Builds a C program against the shared library, under build/."""
    with alone():
        return build_c_alone(GENERATED / name, [str(source) for source in sources], includes, optimize)


def build_c_alone(program, sources, includes, optimize):
    newest = max(pathlib.Path(source).stat().st_mtime for source in
                 [*sources, *(ROOT / "include" / "penstock").glob("*.h"),
                  *(header for include in includes for header in pathlib.Path(include).glob("*.h"))])
    if program.exists() and program.stat().st_mtime > newest:
        return program
    command = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", optimize, "-g", "-Wall", "-Wextra", "-Wpedantic",
               "-Werror", f"-I{ROOT / 'include'}", *(f"-I{include}" for include in includes), *sources,
               "-o", str(program), f"-L{LIBRARY}", "-lpenstock", "-pthread"]
    subprocess.run(command, check=True)
    return program


def build_interop_client():
    folder = ROOT / "Tests" / "interop" / "client"
    return build_c("interop_client", sorted(folder.glob("*.c")), [folder])


def generate_protos():
    """Generates the Python code for Tests/interop/proto, under build/."""
    with alone():
        generate_protos_alone()


def generate_protos_alone():
    folder = ROOT / "Tests" / "interop" / "proto"
    names = sorted(path.name for path in folder.glob("*.proto"))
    outputs = [GENERATED / f"{name[:-6]}_pb2.py" for name in names]
    newest = max((folder / name).stat().st_mtime for name in names)
    if not all(path.exists() and path.stat().st_mtime > newest for path in outputs):
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={GENERATED}",
                        f"--grpc_python_out={GENERATED}", *names], check=True)
    sys.path.insert(0, str(GENERATED))


# ---- Certificates ----


class Certificates:
    """Certificates that openssl makes for one run: `server` is for localhost and 127.0.0.1, `other` for
    another.example, `expired` was good until yesterday, `client` is a client's; all signed by `ca`. `stranger` is by
    another CA, `selfsigned` by itself."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        self.authority("ca", "Penstock test CA")
        self.authority("other-ca", "Another test CA")
        self.certificate("server", "localhost", "ca", names)
        self.certificate("other", "another.example", "ca", "subjectAltName=DNS:another.example")
        self.certificate("expired", "localhost", "ca", names, days="-1")
        self.certificate("client", "a client", "ca", "extendedKeyUsage=clientAuth")
        self.certificate("stranger", "localhost", "other-ca", names)
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout",
                     self.path("selfsigned.key"), "-out", self.path("selfsigned.pem"), "-days", "3", "-subj",
                     "/CN=localhost", "-addext", names)

    def path(self, name):
        return str(self.folder / name)

    def openssl(self, *arguments):
        done = subprocess.run(["openssl", *arguments], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(done.returncode == 0, f"openssl {' '.join(arguments)}: {done.stdout}")

    def authority(self, name, subject):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout",
                     self.path(f"{name}.key"), "-out", self.path(f"{name}.pem"), "-days", "3", "-subj",
                     f"/CN={subject}")

    def intermediate(self, name, by):
        """An authority whose certificate another one has signed."""
        self.certificate(name, f"Penstock test {name}", by, "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign")

    def certificate(self, name, subject, by, extension, days="3"):
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout",
                     self.path(f"{name}.key"), "-out", self.path(f"{name}.csr"), "-subj", f"/CN={subject}")
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(extension + "\n")
        self.openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.path(f"{by}.pem"), "-CAkey",
                     self.path(f"{by}.key"), "-CAcreateserial", "-days", days, "-extfile", str(extensions), "-out",
                     self.path(f"{name}.pem"))

    def client_options(self, mutual=False, **more):
        """The channel option "tls" with which a client trusts these certificates; with `mutual` it also has one of
        its own."""
        tls = {"roots_file": self.path("ca.pem"), **more}
        if mutual:
            tls |= {"certificate_chain_file": self.path("client.pem"), "private_key_file": self.path("client.key")}
        return tls

    def server_options(self, mutual=False, name="server"):
        """Command-line options for grpcio_server.py, and for penstock-peer after its --tls."""
        options = ["--cert", self.path(f"{name}.pem"), "--key", self.path(f"{name}.key")]
        return [*options, "--client-ca", self.path("ca.pem")] if mutual else options


@contextlib.contextmanager
def workspace():
    """A temporary folder for one run. At the end of the run, however it ends, all its processes are ended."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_all)
    folder = tempfile.mkdtemp(prefix="penstock-")
    try:
        yield pathlib.Path(folder)
    finally:
        for process in list(Process.living):
            process.end()
        shutil.rmtree(folder, ignore_errors=True)


# ---- Cases in a program of their own ----


def run_cases(suite, label, command, names, limit=270):
    """Runs `command` with the cases `names`, and counts the lines `ok NAME` and `FAILED NAME` that it prints. If it crashes
    or hangs, the case that was running has failed, and the remaining cases run in a new process."""
    names = [name for name in names if suite.wants(f"{label} {name}")]
    while names:
        with Process([*command, *names]) as process:
            details = []
            while names:
                try:
                    line = process.line(limit=limit)
                except Failure:
                    line = None
                words = (line or "").split()
                if line is None:
                    status = process.popen.poll()
                    suite.note(f"{label} {names.pop(0)}", "; ".join(details) or f"no end (exit status {status})")
                    break
                if len(words) >= 2 and words[0] in ("ok", "FAILED") and words[1] == names[0]:
                    names.pop(0)
                    suite.note(f"{label} {words[1]}", None if words[0] == "ok" else "; ".join(details) or line)
                    details = []
                elif line.startswith("FAILED"):
                    suite.note(f"{label} {words[1]}", "; ".join(details) or line)
                else:
                    details.append(line.strip())
            else:
                status, lines = process.wait(limit)
                closing = [line for line in lines if line.startswith("FAILED closing")]
                if status != 0 or closing:
                    suite.note(f"{label} at the end", f"exit status {status}: {lines[-3:]}")
