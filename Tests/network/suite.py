"""The suite of calls in a network of its own; `run` in this folder starts this program, in namespaces of its own."""

import collections
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "proxies"))

import harness
import names as dns
from harness import Process, check, check_equal, wait_for
from load import KINDS, Caller, Load, penstock
from names import Names
from servers import HERE as PROXIES
from servers import Server

HERE = pathlib.Path(__file__).resolve().parent
FAR, OTHER = "10.77.0.2", "10.77.0.3"
KEEPALIVE = {"keepalive_time_ms": 1000, "keepalive_timeout_ms": 500}
SILENCE = "no answer to a keepalive ping from "
TIMED_OUT = "Connection timed out"
# For channels that should connect again as soon as they can.
SOON = {"initial_backoff_ms": 50, "max_backoff_ms": 200, "connect_timeout_ms": 1000}
# How many seconds later than expected an event may happen on a busy machine.
SLACK = 10


class Link(Process):
    """A process of link.py, a network link that loses or delays packets, and the servers at its other end."""

    def __init__(self):
        super().__init__([sys.executable, HERE / "link.py", FAR, OTHER])
        self.machine = self.told(machine=...)["machine"]

    def become(self, **state):
        self.say(json.dumps(state))
        self.line(lambda line: line == json.dumps(state))

    @contextlib.contextmanager
    def being(self, **state):
        self.become(**state)
        try:
            yield
        finally:
            self.become()

    def server(self, host=FAR, port=0):
        return FarServer(self.machine, host, port)


class FarServer(Server):
    """A process of server.py, a grpcio server, at the other end of a link."""

    def __init__(self, machine, host, port):
        self.calls = []
        self.process = Process(["nsenter", f"--net=/proc/{machine}/ns/net", sys.executable, PROXIES / "server.py", "--listen",
                                f"{host}:{port}"])
        self.port = int(self.process.told(address=...)["address"].rsplit(":", 1)[1])
        self.address = f"{host}:{self.port}"

    def __exit__(self, *_):
        self.process.end()


class Waiting(threading.Thread):
    """One call on a thread of its own, and its result."""

    number = 0

    def __init__(self, channel, kind="unary", timeout=20, **metadata):
        super().__init__(daemon=True)
        Waiting.number += 1
        self.arguments = (kind, f"w{Waiting.number}", b"some bytes", timeout)
        self.caller, self.metadata = Caller(channel), metadata
        self.code = self.words = None
        self.start()

    def run(self):
        began = time.monotonic()
        try:
            found = self.caller.call(*self.arguments, **self.metadata)
            self.code, self.words = "OK", found
        except penstock.RpcError as error:
            self.code, self.words = error.code().name, str(error.details())
        self.seconds = time.monotonic() - began

    def end(self, code, *words, least=0.0, most=20.0):
        """Waits for the end of the call, and checks it: the code, one of `words` in the message, and that the call has taken from
        `least` to `most` seconds."""
        self.join(180)
        check(not self.is_alive(), "a call has not ended")
        check(self.code == code and (not words or any(word in self.words for word in words)), self.code, self.words)
        check(least <= self.seconds <= most, f"{code} after {self.seconds:.2f} s, not {least} to {most}")


class Network:
    def __init__(self, suite, folder):
        self.suite = suite
        self.folder = folder

    def channel(self, target, tls=False, **options):
        return penstock.Channel(target, tls=tls, options=options)

    # ---- A link ----

    def links(self):
        run = self.suite.run
        try:
            link = Link()
        except harness.Failure as failure:
            # The machine may allow no TUN device. Any other error is a failure.
            check("no TUN device" in str(failure), failure)
            print(f"skipped: {failure}")
            return
        with link, link.server() as server:
            for loss in (0.02, 0.2):
                run(f"{loss:.0%} of the packets are lost", self.lossy, link, server, loss)
            run("a link that goes dark, with keepalive", self.dark, link, server)
            run("a link that goes dark under a request, with TCP_USER_TIMEOUT", self.unacknowledged, link, server)
            run("a link that goes dark, without keepalive", self.deadline, link, server)
            run("calls that wait for a link that is dark", self.waits, link, server)
            run("a link that goes dark again and again", self.flaps, link, server)
            run("an address that swallows packets", self.swallowed, link, server)
            with link.server(OTHER, server.port) as other:
                run("two addresses, the first of which swallows packets", self.happy_eyeballs, link, server, other)
                run("the address in use goes dark, the other takes over", self.fails_over, link, server, other)
                run("a slow link", self.slow, link, server)

    def lossy(self, link, server, loss):
        """Makes calls over a link that loses packets. Each ends as expected, and the server has processed it once."""
        with self.channel(server.address) as channel:
            Waiting(channel).end("OK")
            with link.being(loss=loss), Load(channel, 8, 200 if loss < 0.1 else 24) as calls:
                calls.judge([server])

    def dark(self, link, server):
        """Keepalive finds the dead connection: the calls on it end, and the next one makes a new connection."""
        with self.channel(server.address, wait_for_ready=True, **KEEPALIVE, **SOON) as channel:
            Waiting(channel).end("OK")
            calls = [Waiting(channel, kind, **{"x-delay-ms": "3000"}) for kind in KINDS]
            reached = [call.arguments[1] for call in calls]
            wait_for(lambda: set(reached) <= set(server.seen()), "the calls reach the server")
            with link.being(dark=[FAR]):
                for call in calls:
                    call.end("UNAVAILABLE", SILENCE, TIMED_OUT, least=0.4, most=3 + SLACK)
            Waiting(channel, timeout=30).end("OK")

    def unacknowledged(self, link, server):
        """The kernel ends a connection whose bytes are not acknowledged within "keepalive_timeout_ms", long before a ping is
        due."""
        with self.channel(server.address, keepalive_time_ms=60_000, keepalive_timeout_ms=1000, **SOON) as channel:
            Waiting(channel).end("OK")
            with link.being(dark=[FAR]):
                Waiting(channel).end("UNAVAILABLE", TIMED_OUT, least=0.9, most=3 + SLACK)

    def deadline(self, link, server):
        with self.channel(server.address, **SOON) as channel:
            Waiting(channel).end("OK")
            with link.being(dark=[FAR]):
                Waiting(channel, timeout=0.7).end("DEADLINE_EXCEEDED", least=0.69, most=0.7 + SLACK)
            # The connection is still in use.
            Waiting(channel).end("OK")

    def waits(self, link, server):
        with self.channel(server.address, wait_for_ready=True, **KEEPALIVE, **SOON) as channel:
            Waiting(channel).end("OK")
            with link.being(dark=[FAR]):
                Waiting(channel).end("UNAVAILABLE", SILENCE, TIMED_OUT)
                calls = [Waiting(channel, kind, timeout=30) for kind in KINDS]
                wait_for(lambda: channel.connectivity == penstock.Connectivity.TRANSIENT_FAILURE,
                         "TRANSIENT_FAILURE, not", lambda: channel.connectivity)
                check(all(call.is_alive() for call in calls), "a call has not waited")
            for call in calls:
                call.end("OK")

    def flaps(self, link, server):
        options = {**SOON, "keepalive_time_ms": 1000, "keepalive_timeout_ms": 300}
        with self.channel(server.address, wait_for_ready=True, **options) as channel, Load(channel) as calls:
            for _ in range(2):
                calls.more(50)
                before = len(calls.failed())
                with calls.fault(), link.being(dark=[FAR]):
                    wait_for(lambda before=before: len(calls.failed()) > before, "a call fails")
                calls.more(50)
            calls.stop()
            calls.judge([server], f"^UNAVAILABLE .*({SILENCE}|{TIMED_OUT})")

    def swallowed(self, link, server):
        with link.being(dark=[FAR]), self.channel(server.address, connect_timeout_ms=500) as channel:
            Waiting(channel).end("UNAVAILABLE", "connect timeout", least=0.49, most=0.5 + SLACK)

    def happy_eyeballs(self, link, server, other):
        """The second address is tried after 250 ms (RFC 8305), not after the time that an attempt may take."""
        target = f"ipv4:{server.address},{other.address}"
        with link.being(dark=[FAR]), self.channel(target, connect_timeout_ms=10_000) as channel:
            Waiting(channel).end("OK", least=0.24, most=0.25 + SLACK)

    def fails_over(self, link, server, other):
        target = f"ipv4:{server.address},{other.address}"
        for policy in ("pick_first", "round_robin"):
            service = {"loadBalancingConfig": [{policy: {}}]}
            with self.channel(target, service_config=service, wait_for_ready=True, **KEEPALIVE, **SOON) as channel, \
                    Load(channel) as calls:
                calls.more(50)
                with calls.fault(), link.being(dark=[FAR]):
                    before = len(other.seen())
                    while len(other.seen()) < before + 50:
                        calls.more(10)
                    with calls.changed:
                        check(calls.changed.wait_for(calls.failed, 20), "no call has failed")
                calls.stop()
                calls.judge([server, other], f"^UNAVAILABLE .*({SILENCE}|{TIMED_OUT})")

    def slow(self, link, server, _=None):
        """A busy connection with a long round trip is not taken for a dead one."""
        with link.being(delay=0.4), self.channel(server.address, keepalive_time_ms=1000, keepalive_timeout_ms=1500) as channel:
            for kind in KINDS:
                Waiting(channel, kind).end("OK", least=0.8)

    # ---- Servers that SRV records name ----

    NAME = "_grpc._tcp.orders.example"

    def services(self):
        run = self.suite.run
        for path, text in (("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\nsearch wrong.example\n"),
                           ("/etc/nsswitch.conf", "hosts: files dns\n")):
            own = self.folder / pathlib.Path(path).name
            own.write_text(text)
            done = subprocess.run(["mount", "--bind", own, path], check=False, capture_output=True, text=True)
            if done.returncode != 0:
                print(f"skipped: the machine allows no mounts: {done.stderr.strip()}")
                return
        with Names("127.0.0.1") as names, Server() as one, Server() as two:
            for test in (self.one_record, self.tls, self.own_records, self.priorities, self.weights, self.long_answer,
                         self.no_servers, self.servers_change, self.no_answer, self.last_good):
                names.records = {"a.example": [dns.address("127.0.0.1")]}
                names.code, names.silent, names.questions = dns.OK, False, []
                run(f"SRV: {test.__name__.replace('_', ' ')}", test, names, one, two)

    def srv(self, target="dns:///orders.example", services="_grpc._tcp", policy="pick_first", **options):
        options.setdefault("service_config", {"loadBalancingConfig": [{policy: {}}]})
        return self.channel(target, dns_srv=services, **options)

    @staticmethod
    def record(server, priority=1, weight=1):
        return dns.service(priority, weight, server.port.number, "a.example")

    def one_record(self, names, one, _):
        names.records[self.NAME] = [self.record(one)]
        with self.srv() as channel, Load(channel, 4, 40) as calls:
            calls.judge([one])
        asked = [question[:2] for question in names.questions]
        check_equal(asked[0], (self.NAME, dns.SRV))
        # The search domains of resolv.conf are not tried.
        check_equal({name for name, _ in asked}, {self.NAME, "a.example"})

    def tls(self, names, *_):
        """The server's certificate must be for the target's name, not for the host that an SRV record names."""
        certificates = harness.Certificates(self.folder)
        with Server(*certificates.server_options()) as server:
            names.records["_grpc._tcp.localhost"] = [self.record(server)]
            with self.srv("dns:///localhost", tls=certificates.client_options()) as channel:
                Waiting(channel).end("OK")

    def own_records(self, names, one, _):
        names.records["orders.service.consul"] = [self.record(one)]
        with self.srv("orders.service.consul:1", "") as channel:
            Waiting(channel).end("OK")

    def priorities(self, names, one, two):
        """A server with a greater priority number is used only if no server with a smaller one can be connected to."""
        with Server() as gone:
            gone.end()
            names.records[self.NAME] = [self.record(two, 20), self.record(gone, 10), self.record(one, 15)]
            before = len(one.seen()), len(two.seen())
            with self.srv() as channel, Load(channel, 4, 40) as calls:
                calls.judge([one, two])
            check_equal((len(one.seen()), len(two.seen())), (before[0] + 40, before[1]), "calls")
            names.records[self.NAME] = [self.record(two, 20), self.record(one, 10)]
            with self.srv(policy="round_robin") as channel, Load(channel, 4, 40) as calls:
                calls.judge([one, two])
            check_equal((len(one.seen()), len(two.seen())), (before[0] + 80, before[1]), "calls in turn")

    def weights(self, names, one, two):
        names.records[self.NAME] = [self.record(one, 1, 10), self.record(two, 1, 30)]
        with self.srv(policy="static_weighted_round_robin") as channel:
            with Load(channel) as calls:
                before = len(one.seen()), len(two.seen())
                # Waits until both servers are connected.
                while len(one.seen()) == before[0] or len(two.seen()) == before[1]:
                    calls.more(10)
            before = len(one.seen()), len(two.seen())
            with Load(channel, 1, 400) as calls:
                calls.judge([one, two])
            share = len(one.seen()) - before[0]
            check(95 <= share <= 105, f"{share} of 400 calls with a quarter of the weight")
        # pick_first takes one server, at random by weight.
        firsts = collections.Counter()
        for _ in range(40):
            with self.srv() as channel:
                before = len(one.seen())
                Waiting(channel).end("OK")
                firsts[len(one.seen()) > before] += 1
        check(firsts[False] > firsts[True] > 0, "servers that were first:", firsts)

    def long_answer(self, names, one, _):
        names.records[self.NAME] = [self.record(one, 1)] + [
            dns.service(2, 1, number, f"host-{number}.example") for number in range(1, 60)]
        with self.srv() as channel:
            Waiting(channel).end("OK")
        check((self.NAME, dns.SRV, "tcp") in names.questions, "no question by TCP:", names.questions[:3])

    def no_servers(self, names, *_):
        for records, words in ((None, "no SRV record with a server"), ([], "no SRV record with a server"),
                               ([dns.service(0, 0, 0, "")], "no SRV record with a server"),
                               ([dns.service(1, 1, 1, "no-such.example")], "no-such.example.: ")):
            if records is not None:
                names.records[self.NAME] = records
            with self.srv() as channel:
                Waiting(channel).end("UNAVAILABLE", f"the name of dns:///orders.example does not resolve: {self.NAME}: {words}")
        names.code = dns.SERVER_FAILURE
        with self.srv() as channel:
            Waiting(channel).end("UNAVAILABLE", f"{self.NAME}: Temporary failure in name resolution")

    def servers_change(self, names, one, two):
        """When a connection is lost, the channel asks for the records again and uses the new ones."""
        with Server() as first:
            names.records[self.NAME] = [self.record(first)]
            with self.srv(min_resolve_interval_ms=0, wait_for_ready=True, **SOON) as channel:
                Waiting(channel).end("OK")
                names.records[self.NAME] = [self.record(two)]
                before = len(two.seen())
                first.end()
                Waiting(channel).end("OK")
                check_equal(len(two.seen()), before + 1, "calls")

    def no_answer(self, names, one, _):
        """A DNS server that does not answer holds a call up for "connect_timeout_ms" at most."""
        names.silent = True
        names.records[self.NAME] = [self.record(one)]
        with self.srv(connect_timeout_ms=500) as channel:
            Waiting(channel).end("UNAVAILABLE", "did not resolve in time", least=0.49, most=0.5 + SLACK)
        with self.srv(wait_for_ready=True, **SOON) as channel:
            call = Waiting(channel)
            wait_for(lambda: len(names.questions) >= 3, "three questions, not", names.questions)
            names.silent = False
            call.end("OK")

    def last_good(self, names, *_):
        with Server() as server:
            names.records[self.NAME] = [self.record(server)]
            with self.srv(min_resolve_interval_ms=0, wait_for_ready=True, **SOON) as channel:
                Waiting(channel).end("OK")
                names.code = dns.SERVER_FAILURE
                server.end()
                server.begin()
                Waiting(channel).end("OK")
                check(len(names.questions) > 2, "the name was not looked up again")


def main():
    arguments = sys.argv[1:]
    allowed = arguments[:1] != ["--skip"]
    suite = harness.Suite(arguments if allowed else arguments[1:])
    # With CI=true a skipped test is a failure; but no CI can change what its kernel allows.
    suite.run("a network, or the reason why there is none", lambda: None)
    if not allowed:
        return suite.end()
    if not shutil.which("ip"):
        why = "ip is not there; scripts/doctor --check installs it"
        if os.environ.get("CI") == "true":
            suite.note("ip", why)
        else:
            print(f"skipped: {why}")
            suite.skipped += 1
        return suite.end()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with harness.workspace() as folder:
        network = Network(suite, folder)
        for part in (network.services, network.links):
            part()
            suite.section(part.__name__)
    return suite.end()


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    sys.exit(main())
