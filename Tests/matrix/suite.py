"""The fault matrix; `run` in this folder starts this program. Each cell is a fault of faults.py, a kind of call, and
cleartext or TLS. The test checks that the call has the right status, once for its caller and once for its hop, in time, and
that nothing is left afterwards."""

import gc
import json
import os
import pathlib
import re
import sys
import threading
import time
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "proxies"))

import harness
import kills
from faults import FAULTS, table
from harness import ROOT, Process, check, check_equal
from load import penstock
from servers import Server

PAGE = ROOT / "docs" / "errors.md"
PLACE = re.compile(r"(?<=<!-- matrix -->\n).*?(?=<!-- end of matrix -->)", re.S)
METHOD = {"unary": "Unary", "client": "Client", "server": "Server", "bidi": "Bidi"}
# The deadline of calls, in seconds: short for calls that stall, otherwise long enough for a busy machine.
DEADLINE = {"DEADLINE_EXCEEDED": 1.5}
LONG = 40
# How many seconds after its deadline a call may end on a busy machine.
SLACK = 60
BODY = b"x" * 1000
PAUSE = 0.02


class Counting(penstock.Interceptor):
    def __init__(self):
        self.codes = []

    def on_status(self, hop):
        self.codes.append(hop.status.code)


def requests():
    """Yields two messages with a pause between them, so that each comes in a frame of its own."""
    yield BODY
    time.sleep(PAUSE)
    yield BODY


def call(channel, kind, timeout):
    """Makes a call, and gives the name of its code. If the call is OK, checks its answer."""
    method, given = f"/proxies.Calls/{METHOD[kind]}", {"timeout": timeout, "metadata": (("x-id", "1"), ("x-pause-ms", "20"))}
    try:
        if kind == "unary":
            check_equal(channel.unary_unary(method)(BODY, **given), BODY)
        elif kind == "client":
            check_equal(channel.stream_unary(method)(requests(), **given), BODY + BODY)
        elif kind == "server":
            check_equal(list(channel.unary_stream(method)(BODY, **given)), [BODY] * 3)
        else:
            check_equal(list(channel.stream_stream(method)(requests(), **given)), [BODY] * 2)
    except penstock.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""


class Matrix:
    def __init__(self, ports, certificates):
        self.ports = ports
        self.certificates = certificates

    def target(self, fault, way):
        if fault.action == "unknown":
            return "dns:///no-such-name.invalid:1"
        if fault.action == "refuse":
            return "127.0.0.1:1"
        return f"127.0.0.1:{self.ports[fault.name][way]}"

    def cell(self, fault, kind, way):
        tls = self.certificates.client_options() if way == "tls" else False
        hop = Counting()
        timeout = DEADLINE.get(fault.code, LONG)
        with penstock.Channel(self.target(fault, way), tls=tls, interceptors=[hop]) as channel:
            before = time.monotonic()
            code, words = call(channel, kind, timeout)
            took = time.monotonic() - before
        check(code == fault.code, f"{code}, not {fault.code}: {words}")
        check_equal([found.name for found in hop.codes], [fault.code], "the hop's")
        check(took < timeout + SLACK, f"{took:.1f} s")
        if fault.code == "DEADLINE_EXCEEDED":
            check(took > timeout - 0.1, f"only {took:.1f} s")


def settled(descriptors, threads):
    """Waits until nothing is left of the calls: descriptors, threads, calls of the runtime."""
    until = time.monotonic() + 20
    while True:
        gc.collect()
        found = (len(os.listdir("/proc/self/fd")), threading.active_count(), len(penstock.snapshot()["calls"]))
        if found[0] <= descriptors and found[1] <= threads and found[2] == 0:
            return
        check(time.monotonic() < until, f"{found} descriptors, threads and calls; before {(descriptors, threads, 0)}")
        time.sleep(0.05)


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def rounds(matrix, suite, cells):
    """Runs all cells, 16 at a time."""
    with futures.ThreadPoolExecutor(16) as pool:
        waiting = [(name, pool.submit(matrix.cell, *cell)) for name, *cell in cells]
        for name, future in waiting:
            suite.run(name, future.result)


def documented():
    found = PLACE.search(PAGE.read_text())
    check(found, "docs/errors.md has no place for the table")
    check(found.group(0) == table(), "the table in docs/errors.md is not that of Tests/matrix/run --print")


def main():
    if sys.argv[1:] == ["--print"]:
        PAGE.write_text(PLACE.sub(lambda _: table(), PAGE.read_text()))
        return 0
    if sys.argv[1:2] == ["--kills"]:
        suite = harness.Suite([])
        kills.run(suite, int(sys.argv[2]))
        return suite.end()
    suite = harness.Suite(sys.argv[1:])
    with harness.workspace() as folder:
        certificates = harness.Certificates(folder)
        command = [sys.executable, ROOT / "Tests" / "matrix" / "relay.py"]
        with Server() as server, Process([*command, server.address, folder]) as relay:
            ports = json.loads(relay.line())
            matrix = Matrix(ports, certificates)
            ways = ("cleartext", "tls")
            cells = [(f"{fault.name}, {kind}, {way}", fault, kind, way) for fault in FAULTS for way in ways
                     for kind in fault.kinds if way == "tls" or not fault.only_tls]
            cells = [cell for cell in cells if suite.wants(cell[0])]
            # The runtime's own descriptors and threads are there already.
            with penstock.Channel(server.address, tls=False) as channel:
                check_equal(call(channel, "unary", LONG), ("OK", ""))
            descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
            rounds(matrix, suite, cells)
            suite.section(f"{len(FAULTS)} faults, {len(cells)} cells")
            suite.run("nothing is left", settled, descriptors, threads)
        suite.run("the table in docs/errors.md", documented)
    kills.run(suite, 0)
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
