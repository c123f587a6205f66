"""Cases that need a server or proxy of their own: pages that are not answers, idle connections that the server closes,
and servers that stop."""

import collections
import contextlib
import pathlib
import threading

import probe_pb2 as pb
from calls import CONNECT, KINDS, LIMIT, TEXT, WEB, Caller, asked, eventually, failure
from harness import check, check_equal
from penstock import Connectivity, Idempotency, RpcError, StatusCode
from routes import route, server
from servers import Port
from service import PREFIX

# The codes for HTTP statuses without a status of the protocol, by Connect's document ("Error codes") and gRPC's
# http-grpc-status-mapping.
STATUSES = {400: "INTERNAL", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "UNIMPLEMENTED", 429: "UNAVAILABLE",
            502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "UNAVAILABLE",
            200: "UNKNOWN", 204: "UNKNOWN", 301: "UNKNOWN", 302: "UNKNOWN", 307: "UNKNOWN", 308: "UNKNOWN", 405: "UNKNOWN",
            413: "UNKNOWN", 415: "UNKNOWN", 418: "UNKNOWN", 500: "UNKNOWN", 505: "UNKNOWN"}


def sockets(address):
    """The number of connections of the server at `address`, from the kernel's table."""
    wanted = f"0100007F:{int(address.rsplit(':', 1)[1]):04X}"
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1] == wanted and row[3] == "01" for row in rows)


def outcome(make):
    """The name of the status that ends the call."""
    try:
        make()
    except RpcError as error:
        return error.code().name
    return "OK"


class Single:
    def __init__(self, suite):
        self.suite = suite

    def run(self):
        run = self.suite.run
        with server("uvicorn") as one, server("hypercorn") as two:
            for label, address, http, protocol in (
                    ("connect h1", one.address, "1.1", CONNECT), ("connect h2c", two.address, "2", CONNECT),
                    ("grpc-web h1", one.address, "1.1", WEB), ("grpc-web h2c", two.address, "2", WEB),
                    ("grpc-web-text h1", one.address, "1.1", TEXT)):
                run(f"pages instead of answers, {label}", self.pages, address, http, protocol)
            for label, address, http in (("h1", one.address, "1.1"), ("h2c", two.address, "2")):
                run(f"redirects are not followed, {label}", self.redirects, address, http)
                run(f"a prefix of the path, {label}", self.prefix, address, http)
        for protocol in (CONNECT, WEB):
            run(f"uvicorn ends kept connections, {protocol}", self.kept, "uvicorn", "1.1", protocol)
        run("hypercorn ends kept connections, h1", self.kept, "hypercorn", "1.1", CONNECT)
        run("uvicorn ends each connection as calls come", self.raced)
        for kind, http in (("uvicorn", "1.1"), ("hypercorn", "2"), ("hypercorn", "1.1")):
            run(f"{kind} goes away and comes back, {http}", self.away, kind, http)

    def pages(self, address, http, protocol):
        """The HTTP status of a page of HTML becomes the call's code, and the page is not taken for a message."""
        with contextlib.ExitStack() as stack:
            for status, code in STATUSES.items():
                channel = stack.enter_context(route("", f"{address}/page/{status}", protocol, http, ()).channel())
                caller = Caller(channel)
                for kind in KINDS:
                    error = failure(lambda kind=kind, caller=caller: caller.all(kind, asked()))
                    check_equal(error.code().name, code, f"{kind}, status {status}: {error.details()}")
                    check("no call came here" not in error.details(), error.details()[:200])

    def redirects(self, address, http):
        with route("", address, CONNECT, http, ()).channel() as channel:
            there = Caller(channel)
            for status in (301, 302, 303, 307, 308):
                with route("", f"{address}/page/{status}", CONNECT, http, ()).channel() as away:
                    for kind in (*KINDS, "get"):
                        key = f"redirect-{status}-{kind}"
                        more = {"idempotency": Idempotency.NO_SIDE_EFFECTS} if kind == "get" else {}
                        error = failure(lambda kind=kind, key=key, away=away, more=more: Caller(away).all(
                            kind, asked(), metadata=[("x-id", key)], **more))
                        check_equal(error.code().name, "UNKNOWN", f"{kind}, status {status}")
                        check_equal(there.state(pb.Ask(text=key), timeout=LIMIT).text, "", "the service has had the call")

    def prefix(self, address, http):
        for target in (f"{address}{PREFIX}", f"{address}{PREFIX}/"):
            with route("", target, CONNECT, http, ()).channel() as channel:
                for kind in (*KINDS, "get"):
                    more = {"idempotency": Idempotency.NO_SIDE_EFFECTS} if kind == "get" else {}
                    answers, _ = Caller(channel).all(kind, asked(), **more)
                    check(answers[0].seen.path.startswith(f"{PREFIX}/probe.Probe/"), answers[0].seen.path)
                    check_equal(answers[0].seen.verb, "GET" if kind == "get" else "POST")

    def kept(self, kind, http, protocol):
        """The server closes connections that are idle for a second. Later calls do not fail because of this."""
        # A connection that was made while another became free has had no request: the server does not close it, but the
        # channel does.
        options = {"http1_idle_timeout_ms": 5000}
        with server(kind, "--keep-alive", "1") as found, \
                route("", found.address, protocol, http, (), **options).channel() as channel:
            caller = Caller(channel)
            for _ in range(2):
                threads = [threading.Thread(target=lambda: caller.one("unary", asked()), daemon=True) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(LIMIT)
                check(sockets(found.address) >= 1, "no connection was kept")
                eventually(lambda: sockets(found.address), 0)
                for each in KINDS:
                    caller.all(each, asked())

    def raced(self):
        """The server closes each connection right after an answer, perhaps while the next call is being sent. Calls
        that may be repeated succeed; other calls succeed or end with UNAVAILABLE. No call is processed twice."""
        with server("uvicorn", "--keep-alive", "0") as found, route("", found.address, CONNECT, "1.1", ()).channel() as channel:
            caller = Caller(channel)
            for kind, more in (("get", {"idempotency": Idempotency.NO_SIDE_EFFECTS}),
                               ("unary", {"idempotency": Idempotency.IDEMPOTENT})):
                for turn in range(150):
                    found_code = outcome(lambda kind=kind, more=more: caller.all(kind, asked(), **more))
                    check_equal(found_code, "OK", f"{kind}, call {turn}")
            ends = collections.Counter()
            for turn in range(150):
                end = outcome(lambda turn=turn: caller.all("unary", asked(), metadata=[("x-id", f"raced-{turn}")]))
                ends[end] += 1
                times = caller.state(pb.Ask(text=f"raced-{turn}"), timeout=LIMIT, idempotency=Idempotency.IDEMPOTENT).number
                check(times == 1 if end == "OK" else times <= 1, f"call {turn} ended with {end} and was done {times} times")
            check(ends["OK"] >= 75 and set(ends) <= {"OK", "UNAVAILABLE"}, dict(ends))

    def away(self, kind, http):
        """The server is killed during calls, and starts again later. Calls then succeed again."""
        with contextlib.ExitStack() as stack:
            port = Port()
            stack.callback(port.holder.close)
            found = stack.enter_context(server(kind, "--listen", port.address))
            channel = stack.enter_context(route("", port.address, CONNECT, http, (), initial_backoff_ms=20,
                                                max_backoff_ms=100).channel())
            caller = Caller(channel)
            calls = [caller.server_stream(pb.Ask(hold_after="never"), timeout=LIMIT) for _ in range(5)]
            for call in calls:
                next(call)
            held = [threading.Thread(target=lambda: ends.append(outcome(lambda: caller.one("unary", pb.Ask(hold="never"),
                                                                                           metadata=[("x-id", "held")]))))]
            ends = []
            held[0].start()
            eventually(lambda: caller.state(pb.Ask(text="held"), timeout=LIMIT).text, "running")
            found.popen.kill()
            for call in calls:
                error = failure(lambda call=call: list(call))
                check_equal(error.code(), StatusCode.UNAVAILABLE, error.details())
            held[0].join(LIMIT)
            check_equal(ends, ["UNAVAILABLE"], "the unary call")
            found.end()
            error = failure(lambda: caller.one("unary", asked()))
            check_equal(error.code(), StatusCode.UNAVAILABLE, error.details())
            stack.enter_context(server(kind, "--listen", port.address))
            answer = caller.one("unary", asked(), wait_for_ready=True)
            check_equal(answer.text, asked().text)
            check(channel.connectivity in (Connectivity.READY, Connectivity.IDLE), channel.connectivity)


class Proxy:
    """Cases with nginx before the server. nginx itself answers when it can't reach the server."""

    def __init__(self, suite, proxy, behind):
        self.suite = suite
        self.proxy = proxy
        self.behind = behind

    def run(self):
        run = self.suite.run
        for protocol in (CONNECT, WEB):
            run(f"nginx without its server, {protocol}", self.refused, "/away", protocol, "UNAVAILABLE")
            run(f"nginx with a slow server, {protocol}", self.slow, protocol)
            run(f"nginx with a limit of the body, {protocol}", self.small, protocol)
        run("nginx ends connections after 3 requests", self.few)
        run("nginx ends kept connections", self.short)
        run("nginx keeps its connections", self.reused)

    def channel(self, name, path="", protocol=CONNECT):
        return route("", f"{self.proxy.address(name)}{path}", protocol, "1.1", ()).channel()

    def refused(self, path, protocol, code):
        """nginx answers with 502 and a page of HTML."""
        with self.channel("buffered", path, protocol) as channel:
            for kind in KINDS:
                error = failure(lambda kind=kind, channel=channel: Caller(channel).all(kind, asked()))
                check_equal(error.code().name, code, f"{kind}: {error.details()}")

    def slow(self, protocol):
        """nginx answers with 504 if the server does not answer in time. If the answer has begun, nginx cuts it off."""
        with self.channel("buffered", "/slow", protocol) as channel:
            caller = Caller(channel)
            for kind in KINDS:
                error = failure(lambda kind=kind: caller.all(kind, pb.Ask(hold="never")))
                check_equal(error.code().name, "UNAVAILABLE", f"{kind}: {error.details()}")
            call = caller.server_stream(pb.Ask(hold_after="never"), timeout=LIMIT)
            answers = []
            error = failure(lambda: answers.extend(call))
            check(error.code().name in ("UNAVAILABLE", "INTERNAL"), f"{error}")

    def small(self, protocol):
        """nginx answers with 413, perhaps while the request is still being sent."""
        with self.channel("buffered", "/small", protocol) as channel:
            caller = Caller(channel)
            for size in (2_000, 100_000, 4_000_000):
                for kind in KINDS:
                    error = failure(lambda kind=kind, size=size: caller.all(kind, pb.Ask(data=bytes(size))))
                    check_equal(error.code().name, "UNKNOWN", f"{kind}, {size} bytes: {error.details()}")
            check_equal(caller.one("unary", asked()).text, asked().text, "a small call after them")

    def few(self):
        """nginx sends `Connection: close` with every third answer. No call fails."""
        with self.channel("few") as channel:
            caller, wrong = Caller(channel), []

            def run():
                for turn in range(30):
                    end = outcome(lambda turn=turn: caller.all(KINDS[turn % 4], asked()))
                    if end != "OK":
                        wrong.append(end)

            threads = [threading.Thread(target=run, daemon=True) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                check(not thread.is_alive(), "a call hangs")
            check(not wrong, dict(collections.Counter(wrong)))

    def short(self):
        with self.channel("short") as channel:
            for _ in range(2):
                Caller(channel).one("unary", asked())
                check_equal(sockets(self.proxy.address("short")), 1, "connections")
                eventually(lambda: sockets(self.proxy.address("short")), 0)

    def reused(self):
        """Consecutive calls use one connection to nginx, and nginx uses one connection to the server."""
        with self.channel("unbuffered") as channel:
            caller = Caller(channel)
            clients = {caller.all(KINDS[turn % 4], asked())[0][0].seen.client for turn in range(40)}
            check(len(clients) <= 2, f"nginx has used {clients}")
            check_equal(sockets(self.proxy.address("unbuffered")), 1, "connections to nginx")
