"""What the tests of faults share: the client that makes the calls, and what each call has to leave behind."""

import concurrent.futures
import json

import harness
import preload
from harness import ROOT, Process, check, check_equal

HERE = ROOT / "Tests" / "faults"
INTEROP = ROOT / "Tests" / "interop"
# Calls are repeated, so that the heap shows a leak; those of slow scripts are not.
REPEATS = 24
# As many tests run at once, because most of a test's time is waiting.
AT_ONCE = 3
# An end that has no reason to wait comes within this time, in milliseconds, which is far less than the usual deadline.
PROMPT = 10000


def check_left(told, deadline):
    """Checks that nothing is leaked, and that the call ended in time."""
    check_equal(told["descriptors"][1], told["descriptors"][0], "descriptors after and before")
    check_equal(told["threads"][1], told["threads"][0], "threads after and before")
    check(told["ms"] < deadline + PROMPT, f"{told['ms']} ms, with a deadline of {deadline}")
    if told["code"] == "DEADLINE_EXCEEDED":
        check(told["ms"] >= deadline * 0.9, f"DEADLINE_EXCEEDED after {told['ms']} of {deadline} ms")
    attempts, made, gone = told["attempts"]
    # Where the deadline passes before start has left the last hop, the request is not sent, and no attempt counts.
    unsent = attempts == 0 and made == 1 and "before the request was sent" in told["message"]
    check(made == attempts or unsent, f"{made} hops were made for {attempts} attempts")
    check_equal(gone, made, "hops of attempts that have gone")
    check(told["grown"] <= 0, f"the heap has grown by {told['grown']} bytes in {REPEATS // 2} calls")


class Faults:
    """The base of the classes of tests: it runs them, AT_ONCE at a time."""

    def __init__(self, suite, folder, malloc=None):
        self.suite = suite
        self.folder = folder
        # Only glibc's malloc reports the memory in use; blocks that a thread keeps, and a new arena, would count as
        # in use.
        self.malloc = preload.environment(malloc) if malloc else {
            "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1"}
        self.repeats = 0 if malloc else REPEATS
        self.client = harness.build_c("fault_client", [HERE / "fault_client.c", INTEROP / "client" / "rpc.c",
                                                       INTEROP / "client" / "wire.c"], [INTEROP / "client"])
        self.interop_client = harness.build_interop_client()
        self.certificates = harness.Certificates(folder)
        self.certificates.intermediate("middle", "ca")
        self.certificates.certificate("below", "localhost", "middle", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self.begun = []

    def later(self, function, *arguments):
        """Calls the function as soon as fewer than AT_ONCE others run."""
        self.begun.append(self.pool.submit(function, *arguments))

    def run(self, name, function, *arguments):
        self.later(self.suite.run, name, function, *arguments)

    def section(self, title):
        """Waits for the tests so far, which are those of a section."""
        for test in self.begun:
            test.result()
        self.begun.clear()
        self.suite.section(title)

    def calls(self, target, *, tls=False, deadline=20000, styles=("blocking", "callback"), calls="unary,bidi", repeat=0,
              channel=None, at_once=0):
        """The reports of the client's calls."""
        command = [self.client, "--target", target, "--channel", json.dumps({"tls": tls, **(channel or {})}), "--deadline",
                   str(deadline), "--styles", ",".join(styles), "--calls", calls, "--repeat", str(repeat),
                   "--at-once", str(at_once)]
        with Process(command, self.malloc) as process:
            status, lines = process.wait(400)
        told = [json.loads(line) for line in lines if line.startswith("{")]
        others = [line for line in lines if not line.startswith("{")]
        check(status == 0 and not others, f"exit status {status}: {'; '.join(others)[:600]} {told[-1:]}")
        check_equal(len(told), len(styles) * len(calls.split(",")), "calls")
        for one in told:
            one["message"] = bytes.fromhex(one["message"]).decode()
        return told
