"""The suite of calls through real proxies and to servers that come and go; `run` in this folder starts this program."""

import json
import os
import pathlib
import re
import shutil
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import harness
import through_envoy
from chosen import Chosen
from closing import PAUSES
from forward import Forward
from harness import Process, check, check_equal
from load import KINDS, LOST, Caller, Load, penstock
from servers import HERE, Server
from silent import Link, Refusing
from through_envoy import Envoy
from through_haproxy import Haproxy
from through_nginx import Nginx

# For servers that are away for a moment.
WAIT = {"wait_for_ready": True, "initial_backoff_ms": 50, "max_backoff_ms": 200}


class Proxies:
    def __init__(self, suite, folder):
        self.suite = suite
        self.folder = folder
        self.certificates = harness.Certificates(folder)
        self.chosen = Chosen(self)
        self.forward = Forward(self)

    def channel(self, address, tls=False, **options):
        return penstock.Channel(address, tls=self.certificates.client_options() if tls else False, options=options)

    # ---- The calls that every proxy has to let through ----

    def passes(self, address, tls, servers):
        """Makes calls of every kind, small and large, one at a time and many at once."""
        with self.channel(address, tls) as channel:
            for body in (b"", b"x" * 300_000):
                for kind in KINDS:
                    number = f"passes-{tls}-{len(body)}-{kind}"
                    check(Caller(channel).call(kind, number, body) == Caller.expected(kind, body), kind, len(body), "bytes")
            with Load(channel, threads=16, count=400) as calls:
                calls.judge(servers)

    def under(self, address, tls, servers, action, rounds=3, lost=None, **options):
        """Runs `action` repeatedly while calls are made."""
        with self.channel(address, tls, **options) as channel, Load(channel) as calls:
            for turn in range(rounds):
                calls.more()
                with calls.fault():
                    action(turn)
                calls.more()
            calls.stop()
            calls.judge(servers, lost)
            return calls

    # ---- nginx ----

    def nginx(self):
        if not self.suite.there("nginx", shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")):
            return
        run = self.suite.run
        with Server() as one, Server() as two:
            servers = (one, two)
            addresses = [server.address for server in servers]
            with Nginx(self.folder, self.certificates, *addresses) as proxy:
                def again(gently):
                    def action(_):
                        proxy.end(gently)
                        proxy.begin()
                    return action

                for label, port, tls in (("h2c", proxy.plain, False), ("tls", proxy.tls, True)):
                    run(f"nginx {label} passes calls", self.passes, port.address, tls, servers)
                    run(f"nginx {label} reload", self.under, port.address, tls, servers, lambda _: proxy.reload())
                    run(f"nginx {label} restart", lambda *of: self.under(*of, **WAIT), port.address, tls, servers, again(True))
                    run(f"nginx {label} killed", lambda *of: self.under(*of, lost=LOST, **WAIT), port.address, tls, servers,
                        again(False))
            for requests, streams in ((3, 128), (1, 128), (3, 2)):
                with Nginx(self.folder, self.certificates, *addresses, requests=requests, streams=streams) as proxy:
                    for label, port, tls in (("h2c", proxy.plain, False), ("tls", proxy.tls, True)):
                        run(f"nginx {label} {requests} requests a connection, {streams} at once", self.few, port.address, tls,
                            servers)

    def few(self, address, tls, servers):
        """A proxy that ends each connection after a few requests."""
        with self.channel(address, tls) as channel, Load(channel, count=800) as calls:
            calls.judge(servers)
            check_equal(calls.succeeded(), 800, "calls that have succeeded")

    # ---- haproxy ----

    def haproxy(self):
        if not self.suite.there("haproxy", shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")):
            return
        run = self.suite.run
        with Server() as one, Server() as two, Haproxy(self.folder, self.certificates, one.address, two.address) as proxy:
            servers = (one, two)

            def again(gently):
                def action(_):
                    proxy.end(gently)
                    proxy.begin()
                return action

            for label, port, tls in (("h2c", proxy.plain, False), ("tls", proxy.tls, True)):
                run(f"haproxy {label} passes calls", self.passes, port.address, tls, servers)
                run(f"haproxy {label} drain of a server", self.drained, port.address, tls, servers, proxy)
                run(f"haproxy {label} reload", self.under, port.address, tls, servers, lambda _: proxy.reload())
                run(f"haproxy {label} restart", lambda *of: self.under(*of, **WAIT), port.address, tls, servers, again(True))
                run(f"haproxy {label} killed", lambda *of: self.under(*of, lost=LOST, **WAIT), port.address, tls, servers,
                    again(False))
            run("haproxy tcp, idle connections end", self.idle, proxy, servers)
            run("haproxy tcp, calls that are silent for too long", self.cut, proxy, servers)

    def drained(self, address, tls, servers, proxy):
        """haproxy drains a server, which then gets no new calls, and lets it have calls again."""
        with self.channel(address, tls) as channel, Load(channel) as calls:
            for turn in range(4):
                calls.more()
                proxy.say(f"set server servers/s{turn % 2} state drain")
                calls.more()
                proxy.say(f"set server servers/s{turn % 2} state ready")
            calls.stop()
            calls.judge(servers)

    def idle(self, proxy, servers):
        """A proxy that ends each connection on which nothing passes for a while: no call notices."""
        with self.channel(proxy.tcp.address) as channel:
            for _ in range(3):
                with Load(channel, threads=2, count=20) as calls:
                    calls.judge(servers)
                channel.wait_connectivity(penstock.Connectivity.READY, 20)

    def cut(self, proxy, servers):
        """A proxy that ends idle connections cuts slow calls, too, which the server may have processed."""
        with self.channel(proxy.tcp.address) as channel, Load(channel, count=8, **{"x-delay-ms": "1500"}) as calls:
            with calls.fault():
                calls.join()
            # The second status comes from grpcio's server, because the proxy also ends the connection at the
            # server's side.
            calls.judge(servers, LOST + "|^UNAVAILABLE Socket closed$")
            check_equal(len(calls.failed()), 8, "calls that were cut")

    # ---- Envoy ----

    def envoy(self):
        if not self.suite.there("envoy", through_envoy.program()):
            return
        run = self.suite.run
        with Server() as one, Server() as two:
            servers = (one, two)
            addresses = [server.address for server in servers]

            def through(**connections):
                return Envoy(self.folder, self.certificates, *addresses, **connections)

            with through() as proxy:
                for label, port, tls in (("h2c", proxy.plain, False), ("tls", proxy.tls, True)):
                    run(f"envoy {label} passes calls", self.passes, port.address, tls, servers)
                    run(f"envoy {label} drain", self.failing, port.address, tls, servers, proxy)
                    run(f"envoy {label} restart", self.restarted, port.address, tls, servers, proxy)
            with through(max_requests_per_connection=3) as proxy:
                for label, port, tls in (("h2c", proxy.plain, False), ("tls", proxy.tls, True)):
                    run(f"envoy {label} 3 requests a connection", self.few, port.address, tls, servers)
            with through(max_connection_duration="0.1s") as proxy:
                for label, port, tls in (("h2c", proxy.plain, False), ("tls", proxy.tls, True)):
                    run(f"envoy {label} short-lived connections", self.aged, port.address, tls, servers, proxy)
        self.chosen.envoy()

    def failing(self, address, tls, servers, proxy):
        """When Envoy is told to fail health checks, it ends each connection by GOAWAY."""
        before = proxy.counter("http.in.downstream_cx_drain_close")
        with self.channel(address, tls) as channel, Load(channel) as calls:
            calls.more()
            proxy.say("/healthcheck/fail")
            calls.more(300)
            proxy.say("/healthcheck/ok")
            calls.more()
            calls.stop()
            calls.judge(servers)
        check(proxy.counter("http.in.downstream_cx_drain_close") > before, "no connection was drained")

    def restarted(self, address, tls, servers, proxy):
        """All listeners drain, and then Envoy ends and begins again. Calls that begin meanwhile wait."""
        def action(_):
            proxy.say("/drain_listeners?graceful&skip_exit")
            proxy.end()
            proxy.begin()

        self.under(address, tls, servers, action, rounds=2, lost=LOST, **WAIT)

    def aged(self, address, tls, servers, proxy):
        """A proxy that ends connections after a time (GOAWAY, then again with the last stream)."""
        with self.channel(address, tls) as channel, Load(channel) as calls:
            before = proxy.counter("http.in.downstream_cx_max_duration_reached")
            while proxy.counter("http.in.downstream_cx_max_duration_reached") < before + 3:
                calls.more()
            calls.stop()
            calls.judge(servers)

    # ---- Servers that end and come again ----

    def restarts(self):
        for policy in ("pick_first", "round_robin"):
            for gently, how in ((True, "stopped"), (False, "killed")):
                for tls in (False, True):
                    name = f"three servers, {how} in turn, {'tls' if tls else 'h2c'}, {policy}"
                    self.suite.run(name, self.in_turn, gently, tls, policy)

    def in_turn(self, gently, tls, policy):
        options = self.certificates.server_options() if tls else []
        with Server(*options) as one, Server(*options) as two, Server(*options) as three:
            servers = (one, two, three)

            target = "ipv4:" + ",".join(server.address for server in servers)
            balancing = {"loadBalancingConfig": [{policy: {}}]}
            options = {"service_config": balancing, "initial_backoff_ms": 50, "max_backoff_ms": 100}
            with self.channel(target, tls, **options) as channel, Load(channel) as calls:
                for turn in range(4):
                    server = servers[turn % 3]
                    calls.more()
                    with calls.fault():
                        server.end(gently)
                    calls.more()
                    server.begin()
                    # Each server gets its share of the calls again after it has come back.
                    before = len(server.calls)
                    while policy == "round_robin" and len(server.seen()) < before + 20:
                        calls.more(20)
                calls.stop()
                # While grpcio's server stops, it ends calls that it has accepted but not begun with these
                # statuses.
                stops = "^(CANCELLED CANCELLED|UNAVAILABLE Cancelling all calls)$"
                calls.judge(servers, stops if gently else LOST)

    # ---- Connections without an answer ----

    def silence(self):
        self.suite.run("a proxy forgets a connection", self.forgotten)
        self.suite.run("a proxy forgets a connection under load", self.forgotten_under_load)
        for waits in (False, True):
            self.suite.run(f"20 threads and a server that resets connections, wait_for_ready {waits}", self.back_off, waits)
        self.suite.run("20 threads and a closed port", self.closed_port)

    KEEPALIVE = {"keepalive_time_ms": 1000, "keepalive_timeout_ms": 500}
    SILENCE = "^UNAVAILABLE no answer to a keepalive ping from "

    def forgotten(self):
        with Server() as server, Link(server.address) as proxy, self.channel(proxy.address, **self.KEEPALIVE) as channel:
            for kind in KINDS:
                with Load(channel, 1, 1) as calls:
                    calls.judge([server])
                proxy.forget()
                with Load(channel, 1, 1, (kind,)) as calls, calls.fault():
                    calls.join()
                calls.judge([server], self.SILENCE)
                outcome, = calls.failed()
                took = outcome.ended - outcome.began
                check(took < 1.5 + 3, f"{kind} failed after {took:.1f} s")
            check(proxy.accepted <= 5, proxy.accepted, "connections")

    def forgotten_under_load(self):
        with Server() as server, Link(server.address) as proxy, self.channel(proxy.address, **self.KEEPALIVE) as channel, \
                Load(channel) as calls:
            for _ in range(2):
                calls.more()
                with calls.fault():
                    proxy.forget()
                    calls.more()
            calls.stop()
            calls.judge([server], self.SILENCE)
            check(1 <= len(calls.failed()) <= 16, "calls in flight that were lost:", calls.failures())
            check_equal(proxy.accepted, 3, "connections")

    @staticmethod
    def most_attempts(seconds):
        """How often one address may be tried in that time: the back-off begins with 1 s, grows by 1.6, and may be a fifth
        shorter."""
        attempts, at, wait = 0, 0, 1
        while at <= seconds:
            attempts, at, wait = attempts + 1, at + 0.8 * wait, wait * 1.6
        return attempts

    def calls_for(self, channel, seconds, threads=20):
        """Makes calls from many threads for `seconds`. Returns their errors, and how long this has taken."""
        errors = []
        began = time.monotonic()

        def run():
            caller = Caller(channel)
            while (left := began + seconds - time.monotonic()) > 0:
                try:
                    caller.call("unary", "none", timeout=left)
                except penstock.RpcError as error:
                    errors.append(error)

        callers = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
            check(not caller.is_alive(), "a call hangs")
        return errors, time.monotonic() - began

    def back_off(self, waits):
        with Refusing() as port, self.channel(port.address, wait_for_ready=waits) as channel:
            errors, seconds = self.calls_for(channel, 3)
            most = self.most_attempts(seconds)
            check(2 <= port.accepted <= most,
                  f"{port.accepted} connections for {len(errors)} calls in {seconds:.1f} s, not 2 to {most}")
            codes = {error.code().name for error in errors}
            check(codes <= ({"DEADLINE_EXCEEDED"} if waits else {"UNAVAILABLE", "DEADLINE_EXCEEDED"}), "codes:", codes)

    def closed_port(self):
        with Server() as server:
            server.end()
            with self.channel(server.address) as channel:
                errors, seconds = self.calls_for(channel, 3)
                refused = [error.details() for error in errors if error.code() == penstock.StatusCode.UNAVAILABLE]
                check(len(refused) >= 20, f"{len(refused)} calls were refused")
                most = self.most_attempts(seconds)
                for words in refused:
                    found = re.search(r"Connection refused(?:; failed (\d+) times)?(?:; next attempt in \d+ ms)?$", words)
                    check(found and int(found.group(1) or 1) <= most, f"{words}; at most {most} attempts are right")


    # ---- Connections that the peer has closed ----

    CALLS = 300

    def closing(self):
        self.suite.run("a peer that closes each connection behind its answer", self.closed_behind_the_answer)

    def closed_behind_the_answer(self):
        """Calls one after the other, with pauses, to a peer that closes each connection behind its first answer. No call that
        begins after the close is lost, in any row. Without pauses, where many begin before the close, fewer are lost than with
        grpcio; with pauses chance decides whether any does, on a machine that stops the peer before its close."""
        rounds = [(self.lost("penstock"), self.lost("grpcio")) for _ in range(3)]
        for pause in PAUSES:
            (lost, late), (theirs, their_late) = ([sum(found[which][pause][part] for found in rounds) for part in (0, 1)]
                                                  for which in (0, 1))
            print(f"# pauses of {pause * 1000:g} ms: {lost} of {3 * self.CALLS} calls lost, {late} that began after the close; "
                  f"with grpcio {theirs} and {their_late}")
            check_equal(late, 0, f"calls that began after the close and were lost, with pauses of {pause} s")
            if not pause:
                check(lost <= theirs, f"{lost} calls lost, with grpcio {theirs}")

    def lost(self, which):
        """For each pause, how many calls were lost, and how many of these had begun after the peer's close."""
        command = [sys.executable, HERE / "closing.py"]
        with Process([*command, "peer"]) as peer:
            with Process([*command, which, peer.told(address=...)["address"], str(self.CALLS)]) as client:
                rows = [client.told(60, pause=pause) for pause in PAUSES]
            peer.popen.kill()
            peer.popen.wait(20)
            closed = [json.loads(line)["closed"] for line in peer.rest() if line.startswith('{"closed"')]
        found, answered = {}, 0
        for row in rows:
            lost = late = 0
            for began, succeeded in row["calls"]:
                answered += succeeded
                lost += not succeeded
                # The connection that the call was sent on had given the last answer.
                late += not succeeded and answered > 0 and began >= closed[answered - 1]
            found[row["pause"]] = lost, late
        return found


def main():
    suite = harness.Suite(sys.argv[1:])
    with harness.workspace() as folder:
        proxies = Proxies(suite, folder)
        for part in (proxies.nginx, proxies.haproxy, proxies.envoy, proxies.restarts, proxies.silence, proxies.closing,
                     proxies.chosen.health, proxies.chosen.connections, proxies.forward.forward):
            part()
            suite.section(part.__name__)
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
