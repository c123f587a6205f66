"""Which servers get calls, and on how many connections: health checks by the client, and by Envoy; several connections to one
address."""

import contextlib
import random
import threading
import time

from harness import check, check_equal, wait_for
from load import LOST, Caller, Load, penstock
from servers import Server
from through_envoy import Envoy

SERVICE = "proxies.Calls"
POLICY = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": SERVICE}}


def target(servers):
    return "ipv4:" + ",".join(server.address for server in servers)


class Chosen:
    def __init__(self, proxies):
        self.proxies = proxies
        self.suite = proxies.suite

    def channel(self, servers, tls=False, config=POLICY, **options):
        options = {"service_config": config, "initial_backoff_ms": 50, "max_backoff_ms": 100, **options}
        return self.proxies.channel(target(servers), tls, **options)

    @contextlib.contextmanager
    def servers(self, *health, tls=False, more=()):
        options = [*(self.proxies.certificates.server_options() if tls else []), *more]
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(Server(*options, *(["--health", one] if one else []))) for one in health]

    @staticmethod
    def wait_left(server, calls, stretch=50):
        """Waits until calls go only to other servers, because the client has received the new health of `server`."""
        until = time.monotonic() + 30
        while True:
            before = len(server.seen())
            calls.more(stretch)
            if len(server.seen()) == before:
                return
            check(time.monotonic() < until, "it still gets calls")

    @staticmethod
    def wait_share(server):
        """Waits until the server gets calls again."""
        before = len(server.seen())
        wait_for(lambda: len(server.seen()) > before + 20, "it gets its share again")

    # ---- Health checks by the client ----

    def health(self):
        run = self.suite.run
        for tls in (False, True):
            run(f"health, servers that stop to serve and serve again, {'tls' if tls else 'h2c'}", self.in_turn, tls)
        run("health that flaps", self.flapping)
        run("health, servers without a health service", self.unimplemented)
        run("health, no server serves", self.none_serves)
        run("health, servers that are killed in turn", self.killed)
        run("health checks that are switched off, and pick_first", self.switched_off)
        run("health, an idle channel", self.idle)

    def in_turn(self, tls):
        with self.servers("SERVING", "SERVING", "SERVING", tls=tls) as servers, self.channel(servers, tls) as channel, \
                Load(channel) as calls:
            for turn in range(6):
                server = servers[turn % 3]
                calls.more()
                server.do("health NOT_SERVING" if turn % 2 else "health SERVICE_UNKNOWN")
                self.wait_left(server, calls)
                before = len(server.seen())
                calls.more(200)
                check_equal(len(server.seen()), before, "calls to a server that does not serve")
                server.do("health SERVING")
                self.wait_share(server)
            calls.stop()
            # No call was lost, and none failed.
            calls.judge(servers)

    def flapping(self):
        dice = random.Random(7)
        with self.servers("SERVING", "SERVING", "SERVING") as servers, self.channel(servers) as channel, Load(channel) as calls:
            for _ in range(60):
                # The first one always serves.
                dice.choice(servers[1:]).do(f"health {dice.choice(['SERVING', 'NOT_SERVING', 'UNKNOWN'])}")
                calls.more(10)
            for server in servers:
                server.do("health SERVING")
            before = [len(server.seen()) for server in servers]
            wait_for(lambda: all(len(server.seen()) > count + 20 for server, count in zip(servers, before)), "equal shares")
            calls.stop()
            calls.judge(servers)

    def unimplemented(self):
        with self.servers(None, "SERVING", None) as servers, self.channel(servers) as channel:
            with Load(channel, count=400) as calls:
                calls.judge(servers)
            wait_for(lambda: Caller(channel).call("unary", "more") and all(len(server.seen()) >= 20 for server in servers),
                     "all get calls")

    def none_serves(self):
        with self.servers("NOT_SERVING", "NOT_SERVING") as servers, self.channel(servers) as channel:
            caller = Caller(channel)
            for _ in range(3):
                try:
                    caller.call("unary", "none")
                    check(False, "a call has succeeded")
                except penstock.RpcError as error:
                    check_equal(error.code(), penstock.StatusCode.UNAVAILABLE)
                    check("the server says that it does not serve" in error.details(), error.details())
            check_equal(channel.connectivity, penstock.Connectivity.TRANSIENT_FAILURE)
            # Wait-for-ready calls are served as soon as a server reports SERVING.
            found = []
            call = channel.unary_unary("/proxies.Calls/Unary")
            waiting = threading.Thread(daemon=True, target=lambda: found.append(
                call(b"", metadata=[("x-id", "w")], timeout=20, wait_for_ready=True)))
            waiting.start()
            servers[1].do("health SERVING")
            waiting.join(20)
            check_equal(len(found), 1, "calls that have waited")
            check_equal([len(server.seen()) for server in servers], [0, 1])

    def killed(self):
        with self.servers("SERVING", "SERVING", "SERVING") as servers, self.channel(servers) as channel, Load(channel) as calls:
            for turn in range(4):
                server = servers[turn % 3]
                calls.more()
                with calls.fault():
                    server.end()
                calls.more()
                server.begin()
                self.wait_share(server)
            calls.stop()
            calls.judge(servers, LOST)

    def switched_off(self):
        first = {**POLICY, "loadBalancingConfig": [{"pick_first": {}}]}
        with self.servers("NOT_SERVING") as servers:
            for options in ({"health_checks": False}, {"config": first}):
                with self.channel(servers, **options) as channel, Load(channel, count=40) as calls:
                    calls.judge(servers)

    def idle(self):
        """The health stream keeps neither a channel from becoming idle nor a close from completing."""
        with self.servers("SERVING") as servers, self.channel(servers, idle_timeout_ms=100) as channel:
            Caller(channel).call("unary", "one")
            wait_for(lambda: channel.connectivity == penstock.Connectivity.IDLE, "idle")
            Caller(channel).call("unary", "two")
            channel.close_gracefully(20)
            wait_for(lambda: channel.connectivity == penstock.Connectivity.SHUTDOWN, "closed", limit=10)

    # ---- Several connections to one address ----

    def connections(self):
        run = self.suite.run
        for streams in (1, 2, 3, 5, 7, 10, 50):
            run(f"50 calls at once, {streams} streams on each connection", self.at_once, streams)
        run("50 calls at once to two servers, 5 streams on each connection", self.at_once_twice)
        run("several connections under load, servers that are killed", self.scaled_and_killed)
        for streams, count in ((8, 800), (1, 200)):
            for callers in (8, 16, 100):
                run(f"{streams} streams within the limit, {callers} callers", self.few_streams, streams, callers, count)
        run("streams within the limit that are refused, with outlier detection", self.refused_is_not_failed)

    def few_streams(self, streams, callers, count):
        """grpcio's server counts a stream for a moment longer than a client can know, and refuses the next one if the limit is
        reached; grpcio's own client fails calls for this reason. No call is lost, and none is done twice."""
        with Server("--streams", str(streams)) as server, self.channel([server], config={}) as channel, \
                Load(channel, threads=callers, count=count, kinds=("unary",), **{"x-delay-ms": "5"}) as calls:
            calls.judge([server])
            check_equal(calls.succeeded(), count, "calls that have succeeded")

    def refused_is_not_failed(self):
        """Streams that a server refuses do not count for outlier detection, which would take the only server out."""
        detection = {"interval": "0.02s", "baseEjectionTime": "30s", "maxEjectionPercent": 100,
                     "failurePercentageEjection": {"threshold": 0, "minimumHosts": 1, "requestVolume": 1},
                     "childPolicy": [{"round_robin": {}}]}
        config = {"loadBalancingConfig": [{"outlier_detection_experimental": detection}]}
        with Server("--streams", "8") as server, self.channel([server], config=config) as channel, \
                Load(channel, threads=100, count=800, kinds=("unary",), **{"x-delay-ms": "5"}) as calls:
            calls.judge([server])
            check_equal(calls.succeeded(), 800, "calls that have succeeded")

    @staticmethod
    def scaling(most, policy="pick_first"):
        return {"loadBalancingConfig": [{policy: {}}], "connectionScaling": {"maxConnectionsPerSubchannel": most}}

    def at_once(self, streams):
        needed = min(-(-50 // streams), 10)
        with Server("--streams", str(streams)) as server, self.channel([server], config=self.scaling(100)) as channel, \
                Load(channel, threads=50, count=50, **{"x-gate": "1"}) as calls:
            wait_for(lambda: len(server.seen()) == min(50, needed * streams), "as many calls as have room")
            check_equal(server.peers(), needed, "connections")
            server.do("gate")
            calls.judge([server])
            check_equal(server.peers(), needed, "connections")

    def at_once_twice(self):
        config = self.scaling(3, "round_robin")
        with Server("--streams", "5") as one, Server("--streams", "5") as two, \
                self.channel([one, two], config=config) as channel:
            for server in (one, two):
                wait_for(lambda server=server: Caller(channel).call("unary", "first") and server.seen(), "both are connected")
            before = len(one.seen()) + len(two.seen())
            with Load(channel, threads=50, count=50, **{"x-gate": "1"}) as calls:
                wait_for(lambda: len(one.seen()) + len(two.seen()) == before + 30, "as many calls as have room")
                check_equal([one.peers(), two.peers()], [3, 3], "connections")
                one.do("gate")
                two.do("gate")
                calls.judge([one, two])

    def scaled_and_killed(self):
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(Server("--streams", "2")) for _ in range(2)]
            channel = stack.enter_context(self.channel(servers, config=self.scaling(3, "round_robin")))
            calls = stack.enter_context(Load(channel, threads=16))
            for turn in range(4):
                calls.more()
                server = servers[turn % 2]
                with calls.fault():
                    server.end(gently=turn < 2)
                calls.more()
                server.begin()
                # The other server ends next. So this one has to be connected again before that.
                self.wait_share(server)
                check(server.peers() <= 3, "connections:", server.peers())
            calls.stop()
            calls.judge(servers, LOST + "|^(CANCELLED CANCELLED|UNAVAILABLE Cancelling all calls)$")

    # ---- Health checks and ejection by Envoy ----

    def envoy(self):
        run = self.suite.run
        run("envoy with health checks, a server that stops to serve", self.checked_by_envoy)
        run("envoy with outlier detection, a server that fails", self.ejected_by_envoy)

    def through(self, servers, **cluster):
        addresses = [server.address for server in servers]
        # Otherwise Envoy puts off the second change within a second.
        at_once = {"common_lb_config": {"update_merge_window": "0s"}}
        return Envoy(self.proxies.folder, self.proxies.certificates, *addresses, cluster={**cluster, **at_once})

    def checked_by_envoy(self):
        check_config = {"timeout": "1s", "interval": "0.1s", "unhealthy_threshold": 1, "healthy_threshold": 1,
                        "no_traffic_interval": "0.1s", "unhealthy_interval": "0.1s",
                        "grpc_health_check": {"service_name": SERVICE}}
        with self.servers("SERVING", "SERVING") as servers, self.through(servers, health_checks=[check_config]) as proxy:
            for tls, port in ((False, proxy.plain), (True, proxy.tls)):
                wait_for(lambda: proxy.gauge("cluster.servers.membership_healthy") == 2, "both are healthy")
                with self.proxies.channel(port.address, tls) as channel, Load(channel) as calls:
                    for turn in range(4):
                        server = servers[turn % 2]
                        calls.more()
                        server.do("health NOT_SERVING")
                        self.wait_left(server, calls)
                        before = len(server.seen())
                        calls.more(200)
                        check_equal(len(server.seen()), before, "calls to a server that does not serve")
                        server.do("health SERVING")
                        self.wait_share(server)
                    calls.stop()
                    calls.judge(servers)

    def ejected_by_envoy(self):
        """Calls that reach a failing server fail. After the ejection of that server no call fails."""
        detection = {"consecutive_5xx": 5, "interval": "0.1s", "base_ejection_time": "1s", "max_ejection_percent": 100,
                     "enforcing_consecutive_5xx": 100, "enforcing_success_rate": 0, "enforcing_consecutive_gateway_failure": 0}
        with self.servers(None, None) as servers, self.through(servers, outlier_detection=detection) as proxy, \
                self.proxies.channel(proxy.plain.address) as channel, Load(channel) as calls:
            calls.more()
            servers[0].do("fail")
            wait_for(lambda: proxy.gauge("cluster.servers.outlier_detection.ejections_active") == 1, "it is taken out")
            servers[0].do("succeed")
            wait_for(lambda: proxy.gauge("cluster.servers.outlier_detection.ejections_active") == 0, "it is let in again")
            self.wait_share(servers[0])
            failed = len(calls.failed())
            calls.more(200)
            check_equal(len(calls.failed()), failed, "calls that have failed after it was let in again")
            calls.stop()
            check(5 <= failed <= 200, "calls that have failed:", calls.failures())
            wrong = [one for one in calls.failed() if (one.code, one.message) != ("UNAVAILABLE", "it is told to fail")]
            check(not wrong, "other failures:", wrong[:3])
