"""The soak; `run` in this folder starts this program, and soak_client.c makes the calls.

Each call is accounted for: either it has ended as expected, or it was in flight when a fault was injected, and its message
names that fault. A fault is one of: the connections of a channel are reset or closed; its server is killed or stopped
(GOAWAY), and begins again; or a proxy forgets the connections, and keepalive finds that out. Meanwhile another server resets
streams.
"""

import collections
import itertools
import json
import pathlib
import re
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "proxies"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import harness
from harness import Failure, Process, check, check_equal
from servers import Port
from silent import Link

HERE = pathlib.Path(__file__).resolve().parent
RATE = 1000
# How much the memory may grow (KiB): from its median in the first third of the time, the warm-up, to that in
# the last third.
GROWTH_KIB = 768
# By how much the number of descriptors may vary, because connections end and others are made.
SPREAD = 8
OPTIONS = {"wait_for_ready": True, "initial_backoff_ms": 20, "max_backoff_ms": 50, "connect_timeout_ms": 1000,
           "keepalive_time_ms": 1000, "keepalive_timeout_ms": 300}
ORDER = ("connections reset", "connections closed", "server killed", "connections reset", "server stopped", "connections closed",
         "server killed", "connections reset", "server stopped", "connections closed", "connections forgotten")
LOST = "^(the connection failed|connection closed by peer)"
SILENT = "^no answer to a keepalive ping"


class Server:
    """A peer that is killed, or stopped, and begins again at its port, and the link in front of it."""

    def __init__(self, *options):
        self.port = Port()
        self.options = options
        self.begin()
        self.link = Link(self.port.address)

    def begin(self):
        self.process = harness.peer("--listen", self.port.address, *self.options)

    def again(self, number):
        self.process.signal(number)
        self.process.popen.wait(20)
        self.process.end()
        self.begin()

    def end(self):
        self.link.close()
        self.process.end()
        self.port.holder.close()


class Fault:
    def __init__(self, name, words, within):
        """`words`: a pattern for the messages of calls that the fault has ended. `within`: how many seconds after the fault
        calls may still notice it."""
        self.name, self.words, self.within = name, words, within
        self.count = self.calls = 0
        self.times = []

    def hit(self, call):
        """The time of the fault that ended `call`; None: no fault of this kind did."""
        if not re.search(self.words, call["status"]["message"]):
            return None
        return max((begin for server, begin, end in self.times if server == call["channel"]
                    and call["began"] / 1e6 <= end + self.within and call["ended"] / 1e6 >= begin), default=None)


class Soak:
    def __init__(self, folder, seconds):
        self.seconds = seconds
        self.certificates = harness.Certificates(folder)
        self.program = harness.build_c("soak_client", [HERE / "soak_client.c"], optimize="-O2")
        self.servers = [Server(), Server("--tls", *self.certificates.server_options())]
        self.faults = {name: Fault(name, words, within) for name, words, within in (
            ("connections reset", LOST, 0.5), ("connections closed", LOST, 0.5), ("server killed", LOST, 0.5),
            ("server stopped", LOST, 0.5), ("connections forgotten", SILENT, 3))}

    def run(self):
        plain, secure = self.servers
        options = [json.dumps({**OPTIONS, "tls": tls}) for tls in (False, self.certificates.client_options())]
        with harness.peer("--script", HERE / "resetting.script") as resetting, \
                Process([self.program, self.seconds, RATE, resetting.address, plain.link.address, options[0],
                         secure.link.address, options[1]]) as client:
            client.told(seconds=...)
            turns = itertools.count()
            while client.popen.poll() is None and '{"end"' not in "".join(client.seen[-1:]):
                self.inject(next(turns))
                self.look(client)
            status, lines = client.wait(60)
        check_equal(status, 0, f"exit status; {lines[-3:]}")
        return [json.loads(line) for line in lines if line.startswith("{")], [line for line in lines if not line.startswith("{")]

    def look(self, client):
        """Lets calls pass for a while between two faults."""
        until = time.monotonic() + 0.2
        while time.monotonic() < until and client.popen.poll() is None:
            time.sleep(0.02)

    def inject(self, turn):
        server = self.servers[turn % 2]
        name = ORDER[turn // 2 % len(ORDER)]
        fault = self.faults[name]
        began = time.monotonic()
        if name == "connections reset":
            server.link.cut(reset=True)
        elif name == "connections closed":
            server.link.cut()
        elif name == "connections forgotten":
            server.link.forget()
        else:
            server.again(signal.SIGKILL if name == "server killed" else signal.SIGTERM)
        fault.times.append((turn % 2, began, time.monotonic()))
        fault.count += 1

    def explain(self, calls):
        """Finds for each failed call the fault that its message names."""
        unexplained = []
        for call in calls:
            hits = {fault.hit(call): fault for fault in self.faults.values()}
            hits.pop(None, None)
            if call["failed"] != 14 or not hits:
                unexplained.append(call)
            else:
                hits[max(hits)].calls += 1
        groups = collections.Counter((call["expected"], call["failed"], call["status"]["message"]) for call in unexplained)
        check(not unexplained, f"{len(unexplained)} calls have failed for no reason: {groups.most_common(5)}")

    def end(self):
        for server in self.servers:
            server.end()


def growth(counts):
    """How much higher the median of the last third is than the median of the first third."""
    third = max(len(counts) // 3, 1)
    return statistics.median(counts[-third:]) - statistics.median(counts[:third])


class Verdicts:
    """The checks of the run's figures. Each check is a test of its own."""

    def __init__(self, soak, told, others):
        self.soak, self.others = soak, others
        self.failed = [line for line in told if "failed" in line and "status" in line]
        self.points = [line for line in told if "seconds" in line]
        self.end = next((line for line in told if "end" in line), None)
        if self.end is None:
            raise Failure(f"the client has not said how it ended: {told[-2:]} {others[-5:]}")
        self.warm = [point for point in self.points if point["seconds"] >= self.points[-1]["seconds"] / 3]

    def each_call_is_accounted_for(self):
        end = self.end
        check(not self.others, "the client has said:", self.others[:5])
        check_equal(end["ended"], end["begun"], "calls that have ended, of those that have begun")
        check_equal(end["good"] + end["planned"] + end["failed"], end["ended"], "calls that went well, as planned, or failed")
        check_equal(len(self.failed), end["failed"], "failures that were told")
        check_equal(end["wrong"], 0, "wrong messages")
        check(end["good"] > 5 * end["failed"] and end["planned"] > 0, "most calls should succeed:", end)

    def failures_are_those_injected(self):
        self.soak.explain(self.failed)

    def hops_come_and_go(self):
        end = self.end
        check_equal(end["finalized"], end["added"], "interceptors that were finalized, of those added")
        check_equal(end["gone"], end["made"], "hops that have gone, of those made")
        check(end["made"] > 0, "no call has met an interceptor")

    def memory_stays(self):
        rise = growth([point["kib"] for point in self.warm])
        print(f"memory: {self.warm[0]['kib']} KiB after the warm-up, {self.warm[-1]['kib']} KiB at the end: it grows by"
              f" {rise:.0f} KiB")
        check(rise <= GROWTH_KIB, f"the memory grows by {rise:.0f} KiB after the warm-up, more than {GROWTH_KIB}")

    def descriptors_stay(self):
        counts = [point["descriptors"] for point in self.warm]
        print(f"descriptors: {min(counts)} to {max(counts)}; threads: {min(p['threads'] for p in self.warm)} to"
              f" {max(p['threads'] for p in self.warm)}")
        check(max(counts) - min(counts) <= SPREAD, "descriptors:", counts)
        check(growth(counts) <= 1, "descriptors grow:", counts)
        check_equal(self.end["descriptors"], 0, "descriptors that are left")
        check_equal(self.end["threads"], 0, "threads that are left")


def main():
    seconds = sys.argv[1] if len(sys.argv) > 1 else "20"
    suite = harness.Suite([])
    with harness.workspace() as folder:
        soak = Soak(folder, seconds)
        try:
            verdicts = Verdicts(soak, *soak.run())
        except Failure as failure:
            suite.note("the soak", failure)
            return suite.end()
        finally:
            soak.end()
        for name in ("each_call_is_accounted_for", "failures_are_those_injected", "hops_come_and_go", "memory_stays",
                     "descriptors_stay"):
            suite.run(name.replace("_", " "), getattr(verdicts, name))
        end = verdicts.end
        print(f"{end['begun']} calls in {end['end']} s, {end['begun'] / end['end']:.0f} a second: {end['good']} OK,"
              f" {end['planned']} with the status that was asked for, {end['failed']} lost by faults;"
              f" {end['made']} hops of {end['added']} interceptors")
        for fault in soak.faults.values():
            print(f"{fault.name}: {fault.count} times, {fault.calls} calls lost")
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
