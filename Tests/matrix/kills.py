"""Calls to a server that is killed again and again and begins anew at once, by our client and by grpcio's at the same time.

Each client has the same number of threads, which call again and again. With a retry policy, a call that the policy can still
send again must not be lost: one that fails has had all of its attempts. Without one, and with the default back-off, as many
calls get through as with grpcio."""

import collections
import json
import threading

import grpc
from harness import PEER, Process, check
from load import penstock
from servers import Port

ATTEMPTS = 5
CONFIG = {"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": ATTEMPTS, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"]}}]}
METHOD = "/penstock.Echo/Unary"
# A call is on its way for 20 ms, so that each kill hits some of them.
METADATA = (("x-delay-ms", "20"),)
THREADS = 8
# The pause of a thread after a call that has failed at once, in seconds.
PAUSE = 0.005
BODY = b"some bytes"


class Killed:
    """A server that can be killed, and begins again on its port."""

    def __init__(self):
        self.port = Port()
        self.begin()

    def begin(self):
        self.process = Process([PEER, "--listen", self.port.address, "--exit-with-stdin"])
        self.process.told(address=...)

    def kill(self):
        self.process.popen.kill()
        self.process.popen.wait(20)
        self.process.end()


class Client:
    """Threads that call until `stop`, and count how the calls end."""

    def __init__(self, call):
        self.call = call
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        self.got, self.lost = 0, collections.Counter()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.stopped.is_set():
            failure = self.call()
            with self.lock:
                if failure is None:
                    self.got += 1
                else:
                    self.lost[failure] += 1
            if failure is not None:
                self.stopped.wait(PAUSE)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)
            check(not thread.is_alive(), "a call has not ended")

    @property
    def failures(self):
        return sum(self.lost.values())

    def __str__(self):
        return f"{self.got} got through, {self.failures} were lost {dict(self.lost)}"


def ours(channel, **more):
    method = channel.unary_unary(METHOD)

    def call():
        try:
            check(method(BODY, metadata=METADATA, timeout=30, **more) == BODY, "a wrong answer")
        except penstock.RpcError as error:
            return error.code().name, error.stats["attempts"], str(error.details())
        return None

    return call


def theirs(channel, **more):
    method = channel.unary_unary(METHOD)

    def call():
        try:
            method(BODY, metadata=METADATA, timeout=30, **more)
        except grpc.RpcError as error:
            return error.code().name
        return None

    return call


def under_kills(server, kills, pause, *calls):
    """Kills the server `kills` times, once every `pause` seconds, while a client makes each of `calls`; returns the clients."""
    clients = [Client(call) for call in calls]
    stopped = threading.Event()
    for _ in range(kills):
        stopped.wait(pause)
        server.kill()
        server.begin()
    stopped.wait(pause)
    for client in clients:
        client.stop()
    return clients


def survives(kills, pause):
    """Kills the server `kills` times, once every `pause` seconds, and compares the two clients."""
    server = Killed()
    own = {"service_config": CONFIG, "initial_backoff_ms": 50, "max_backoff_ms": 400}
    other = (("grpc.service_config", json.dumps(CONFIG)), ("grpc.initial_reconnect_backoff_ms", 50),
             ("grpc.min_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 400))
    with penstock.Channel(server.port.address, tls=False, options=own) as channel, \
            grpc.insecure_channel(server.port.address, other) as peer:
        mine, grpcio = under_kills(server, kills, pause, ours(channel), theirs(peer))
        retries = channel.stats()["attempts"]["retries"]
    server.kill()
    print(f"{kills} kills, one every {pause} s: of our calls {mine} after {retries} retries; of grpcio's {grpcio}", flush=True)
    early = {failure: count for failure, count in mine.lost.items() if failure[0] != "UNAVAILABLE" or failure[1] < ATTEMPTS}
    check(not early, "calls were lost that the policy allows to be sent again:", early)
    check(retries > 0, "no kill has hit a call")
    check(mine.failures <= grpcio.failures, "more of our calls were lost than of grpcio's")
    # A few kills say little about small differences.
    least = grpcio.got if kills >= 50 else grpcio.got * 0.8
    check(mine.got >= least, f"{mine.got} of our calls got through, {grpcio.got} of grpcio's")


def finds(kills, waits, least):
    """Kills the server `kills` times, once every half second. Without a retry policy, and with the default back-off, `least` of
    our calls get through for each one of grpcio's. `waits`: calls wait for a connection."""
    server = Killed()
    with penstock.Channel(server.port.address, tls=False) as channel, grpc.insecure_channel(server.port.address) as peer:
        mine, grpcio = under_kills(server, kills, 0.5, ours(channel, wait_for_ready=waits), theirs(peer, wait_for_ready=waits))
    server.kill()
    print(f"{kills} kills, one every 0.5 s, {'wait_for_ready' if waits else 'not wait_for_ready'}: of our calls {mine.got} got "
          f"through, {mine.failures} were lost; of grpcio's {grpcio.got} and {grpcio.failures}", flush=True)
    check(mine.got >= grpcio.got * least, f"{mine.got} of our calls got through, {grpcio.got} of grpcio's")


def run(suite, kills):
    """Tests with `kills` kills; 0: with few, in 30 seconds."""
    for count, pause in ((kills or 8, 0.5), (kills or 4, 1)):
        suite.run(f"a kill every {pause} s, with a retry policy", survives, count, pause)
    for waits in (False, True):
        # A few kills say little about small differences.
        suite.run(f"a kill every 0.5 s, with the default back-off, {'wait_for_ready' if waits else 'not wait_for_ready'}",
                  finds, kills or 20, waits, 1 if kills >= 40 else 0.5)
