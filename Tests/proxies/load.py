"""Calls of all kinds from several threads, each with a number of its own, and the result of each."""

import collections
import contextlib
import dataclasses
import pathlib
import re
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import harness
from harness import check

sys.path.insert(0, str(harness.ROOT / "bindings" / "python" / "src"))

import penstock

penstock.load(str(harness.LIBRARY / "libpenstock.so.0"))

# A connection that ended without a GOAWAY for the call.
LOST = "^UNAVAILABLE (the connection failed: (Connection reset by peer|Broken pipe)|connection closed by peer)"
# How long after its end a connection may still get calls, in seconds.
NOTICED = 1
KINDS = ("unary", "server", "client", "bidi")
BODY = b"some bytes"


class Caller:
    """Makes calls of the four kinds on a channel."""

    def __init__(self, channel):
        self.methods = {
            "unary": channel.unary_unary("/proxies.Calls/Unary"),
            "server": channel.unary_stream("/proxies.Calls/Server"),
            "client": channel.stream_unary("/proxies.Calls/Client"),
            "bidi": channel.stream_stream("/proxies.Calls/Bidi"),
        }

    def call(self, kind, number, body=BODY, timeout=20, **metadata):
        """Makes one call, and returns the messages of its answer. Raises RpcError if the call fails."""
        method = self.methods[kind]
        more = {"metadata": [("x-id", number), *metadata.items()], "timeout": timeout}
        if kind == "unary":
            return [method(body, **more)]
        if kind == "server":
            return list(method(body, **more))
        if kind == "client":
            return [method(iter([body, body]), **more)]
        return list(method(iter([body, body]), **more))

    @staticmethod
    def expected(kind, body=BODY):
        return {"unary": [body], "server": [body] * 3, "client": [body + body], "bidi": [body, body]}[kind]


@dataclasses.dataclass
class Outcome:
    number: str
    code: str
    message: str
    attempts: int
    began: float
    ended: float


class Load:
    """Threads that call again and again, until `stop`, or until there were `count` calls."""

    names = iter(range(1 << 60))

    def __init__(self, channel, threads=8, count=None, kinds=KINDS, **metadata):
        self.caller = Caller(channel)
        self.name = f"l{next(Load.names)}"
        self.kinds = kinds
        self.metadata = metadata
        self.left = count
        self.outcomes = []
        self.good = 0
        self.wrong = []
        self.changed = threading.Condition()
        self.stopped = False
        self.begun = 0
        self.faults = []
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopped = True
        self.join()

    def join(self):
        for thread in self.threads:
            thread.join(60)
            check(not thread.is_alive(), "a call has not ended")

    def take(self):
        with self.changed:
            if self.stopped or self.begun == self.left:
                return None
            self.begun += 1
            return self.begun

    def run(self):
        while (turn := self.take()) is not None:
            kind = self.kinds[turn % len(self.kinds)]
            number = f"{self.name}.{turn}"
            began = time.monotonic()
            code, message, attempts = "OK", "", 0
            try:
                found = self.caller.call(kind, number, **self.metadata)
                if found != Caller.expected(kind):
                    self.wrong.append(f"{kind} {number}: {found}")
            except penstock.RpcError as error:
                code, message, attempts = error.code().name, str(error.details()), error.stats["attempts"]
            with self.changed:
                self.outcomes.append(Outcome(number, code, message, attempts, began, time.monotonic()))
                self.good += code == "OK"
                self.changed.notify_all()

    def more(self, count=100):
        """Waits until `count` more calls have succeeded."""
        with self.changed:
            wanted = self.good + count
            came = self.changed.wait_for(lambda: self.good >= wanted, 60)
        check(came, f"not {count} more calls within 60 s;", self.failures())

    def succeeded(self):
        """How many calls have succeeded so far."""
        return self.good

    def failed(self):
        return [outcome for outcome in self.outcomes if outcome.code != "OK"]

    def failures(self):
        """The failed calls, by code, message and number of attempts."""
        groups = collections.Counter(
            f"{one.code} \"{re.sub(r'[0-9]+', 'N', one.message)}\" after {one.attempts} attempts" for one in self.failed())
        return "; ".join(f"{count} of {len(self.outcomes)}: {group}" for group, count in groups.most_common())

    @contextlib.contextmanager
    def fault(self):
        """Within this block connections are made to end, so calls in flight may be lost."""
        began = time.monotonic()
        yield
        self.faults.append((began, time.monotonic()))

    def was_in_flight(self, outcome):
        """Whether a fault may have hit the call. For NOTICED seconds calls may be sent on a connection that has already ended."""
        return any(outcome.began <= end + NOTICED and outcome.ended >= begin for begin, end in self.faults)

    def judge(self, servers, lost=None):
        """Checks that no call was processed twice, and that each has succeeded. Calls in flight during a `fault` may also fail
        with an error that matches `lost`, because the connection has ended without telling whether they were processed."""
        self.join()
        check(not self.wrong, "wrong answers:", self.wrong[:3])
        times = collections.Counter(number for server in servers for number in server.seen())
        twice = [outcome for outcome in self.outcomes if times[outcome.number] > 1]
        check(not twice, f"{len(twice)} calls were done twice:", twice[:3])
        absent = [outcome for outcome in self.outcomes if outcome.code == "OK" and not times[outcome.number]]
        check(not absent, f"{len(absent)} calls have succeeded and were never done:", absent[:3])
        bad = [outcome for outcome in self.failed() if not (
            lost and re.search(lost, f"{outcome.code} {outcome.message}") and self.was_in_flight(outcome))]
        done = sum(bool(times[outcome.number]) for outcome in bad)
        check(not bad, f"{len(bad)} calls have failed, of which {done} had reached a server:", self.failures())
