"""The fault suite; `run` in this folder starts it."""

import concurrent.futures
import contextlib
import json
import pathlib
import signal
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "memory"))

import harness
import preload
from harness import ROOT, Process, check, check_equal, peer
from story import Story

HERE = ROOT / "Tests" / "faults"
INTEROP = ROOT / "Tests" / "interop"
# Calls are repeated, so that the heap shows a leak; those of slow scripts are not.
REPEATS = 24
# As many tests run at once, because most of a test's time is waiting.
AT_ONCE = 3
# An end that has no reason to wait comes within this time, in milliseconds, which is far less than the usual deadline.
PROMPT = 10000
# One script of each kind also runs under valgrind.
VALGRIND = ("close-after-headers", "connect-reset", "continuation", "details-malformed", "garbage",
            "goaway-drops-stream", "gzip-bomb", "gzip-garbage", "half-frame", "half-message", "headers-too-large",
            "hpack-garbage", "http-503", "http1-answer", "http1-both-lengths", "http1-chunk-size-huge",
            "http1-close-mid-chunk", "http1-connect-end-cut-json", "http1-connect-error", "http1-connect-error-cut",
            "http1-folding", "http1-headers-flood", "http1-rubbish-behind", "http1-reset-without-answer",
            "http1-text-not-base64", "http1-web-trailers-cut", "message-too-large", "no-message", "push-promise",
            "rst-after-message", "rst-refused-once", "silence-after-message", "two-messages",
            "window-overflow-stream")


def answer_type(protocol, kind):
    """The content-type of an answer in protobuf."""
    if protocol == "connect" and kind == "unary":
        return "application/proto"
    return f"application/{protocol}+proto"


def check_left(told, deadline):
    """Checks that nothing is leaked, and that the call ended in time."""
    check_equal(told["descriptors"][1], told["descriptors"][0], "descriptors after and before")
    check_equal(told["threads"][1], told["threads"][0], "threads after and before")
    check(told["ms"] < deadline + PROMPT, f"{told['ms']} ms, with a deadline of {deadline}")
    if told["code"] == "DEADLINE_EXCEEDED":
        check(told["ms"] >= deadline * 0.9, f"DEADLINE_EXCEEDED after {told['ms']} of {deadline} ms")
    attempts, made, gone = told["attempts"]
    check_equal(made, attempts, "hops that were made for attempts")
    check_equal(gone, made, "hops of attempts that have gone")
    check(told["grown"] <= 0, f"the heap has grown by {told['grown']} bytes in {REPEATS // 2} calls")


class Faults:
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

    # ---- Scripts ----

    def stories(self):
        """All scripts of the folder."""
        stories = [Story(path) for path in sorted(HERE.glob("*.script"))]
        check(len(stories) >= 30, f"{len(stories)} scripts")
        check(sum(story.is_open for story in stories) <= 1, "scripts with alternatives")
        return stories

    def scripts(self):
        for story in self.stories():
            if story.needs_tls:
                continue
            repeat = 0 if story.is_slow else self.repeats
            for protocol in story.protocols:
                for kind in story.kinds:
                    if story.counts_connections:
                        for style in ("blocking", "callback"):
                            self.later(self.play, story, protocol, kind, (style,), 0)
                    else:
                        self.later(self.play, story, protocol, kind, ("blocking", "callback"), repeat)

    def play(self, story, protocol, kind, styles, repeat, *options):
        """Runs a script as one test for each style; the tests share a peer."""
        names = {style: f"{story.label(protocol)} {kind} {style}" for style in styles}
        if not any(self.suite.wants(name) for name in names.values()):
            return
        try:
            with peer("--script", story.path, *options) as server:
                told = self.calls(server.address, deadline=story.deadline, styles=styles, calls=kind, repeat=repeat,
                                  channel=story.channel(protocol))
        except harness.Failure as failure:
            for name in names.values():
                self.suite.note(name, failure)
            return
        for one in told:
            self.suite.run(names[one["style"]], self.judge, story, one)

    @staticmethod
    def judge(story, told):
        story.check(told)
        check_left(told, story.deadline)

    def over_tls(self):
        """All scripts but the slow ones also run over TLS: a unary call, and a bidi call on a host-driven runtime."""
        for story in self.stories():
            if story.is_slow:
                continue
            for style, kind in (("blocking", "unary"), ("host-callback", "bidi")):
                if kind in story.kinds:
                    protocol = story.protocols[0]
                    self.run(f"{story.label(protocol)} {kind} {style} tls", self.play_tls, story, protocol, kind, style)

    def play_tls(self, story, protocol, kind, style):
        with peer("--script", story.path, "--tls", *self.certificates.server_options()) as server:
            told, = self.calls(server.address, tls=self.certificates.client_options(), deadline=story.deadline,
                               styles=(style,), calls=kind, channel=story.channel(protocol))
        self.judge(story, told)

    def over_protocols(self):
        """A script of HTTP/2 whose answer does not go beyond the headers ends the calls of all protocols alike."""
        for story in self.stories():
            if story.http == "2" and story.is_silent and not story.is_slow and not story.needs_tls:
                for protocol in ("grpc-web", "grpc-web-text", "connect"):
                    for kind in story.kinds:
                        self.later(self.play, story, protocol, kind, ("callback",), 0, "--answer-type",
                                   answer_type(protocol, kind))

    def crowds(self):
        """Makes a hundred calls of a host-driven runtime at the same time, each on a connection of its own to a server that
        plays the script. Each call has to end with the status that one call alone has."""
        for story in self.stories():
            if story.http == "1.1" and not story.counts_connections and not story.is_heavy:
                self.run(f"{story.name} crowd", self.crowd, story, story.protocols[0], story.kinds[-1])

    def crowd(self, story, protocol, kind):
        channel = {**story.channel(protocol), "http1_max_connections": 100}
        # A connection that is kept serves several of the calls.
        with peer("--script", story.path, "--times", "200") as server:
            told, = self.calls(server.address, deadline=story.deadline, styles=("host-callback",), calls=kind,
                               channel=channel, at_once=100)
        self.judge(story, told)

    def valgrind(self):
        for story in self.stories():
            if story.name in VALGRIND:
                self.run(f"valgrind {story.name}", self.under_valgrind, story)

    def under_valgrind(self, story):
        deadline = max(story.deadline, 3000)
        kinds = story.kinds if not story.counts_connections else ("bidi",)
        with peer("--script", story.path) as server, \
                Process([*harness.VALGRIND, self.client, "--target", server.address, "--deadline", str(deadline),
                         "--styles", "callback", "--calls", ",".join(kinds), "--channel",
                         json.dumps({"tls": False, **story.channel(story.protocols[0])})]) as process:
            status, lines = process.wait(300)
        check_equal(status, 0, "\n".join(lines)[:1500])
        check_equal(sum(line.startswith("{") for line in lines), len(kinds), "calls")

    # ---- Faults that need no script ----

    def local(self):
        run = self.run
        for style in ("blocking", "callback", "thread", "host", "host-callback"):
            run(f"refused connection {style}", self.refused, style)
            run(f"unix socket that is not there {style}", self.no_socket_file, style)
            run(f"server killed mid-stream {style}", self.killed, style)
            run(f"server stopped, bidi {style}", self.stopped_stream, style)
            run(f"server stopped, unary {style}", self.stopped_unary, style)
            run(f"server stopped, keepalive {style}", self.stopped_keepalive, style)
            run(f"silent socket {style}", self.silent_socket, style)
        run("name that does not resolve", self.no_such_name)
        run("unix path of a plain file", self.plain_file)
        run("second address works", self.second_address)
        run("no address works", self.no_address)
        run("a full backlog, deadline", self.full_backlog, 400, None)
        run("a full backlog, connect timeout", self.full_backlog, 20000, 300)
        run("silent socket, TLS", self.silent_tls, 400, None)
        run("silent socket, TLS, connect timeout", self.silent_tls, 20000, 300)
        run("silent socket, cleartext, connect timeout", self.silent_cleartext)
        for name, title, fragments in (
                ("other", "TLS: certificate for another host", ("hostname mismatch", "host name", "ip address mismatch")),
                ("selfsigned", "TLS: self-signed certificate", ("self-signed", "self signed")),
                ("expired", "TLS: expired certificate", ("expired",)),
                ("stranger", "TLS: unknown authority", ("issuer certificate", "unable to"))):
            for target in ("localhost", "127.0.0.1"):
                run(f"{title} {target}", self.wrong_certificate, name, target, fragments)
        run("TLS: the server's certificate as the root", self.partial_chain, "server")
        run("TLS: an intermediate authority as the root", self.partial_chain, "middle")
        run("TLS: a root beside the chain", self.other_anchor)
        run("memory of many details, unary", self.memory_of_details, "unary", "http1-connect-error-many-details")
        run("memory of many details, bidi", self.memory_of_details, "bidi", "http1-connect-end-many-details")
        run("TLS: verification off", self.verification_off)
        run("TLS: another server_name", self.wrong_server_name)
        run("TLS: no ALPN", self.alpn)
        run("TLS: ALPN http/1.1", self.alpn, "-alpn", "http/1.1")
        run("TLS: 1.1 only", self.old_tls)
        run("TLS: client, cleartext server", self.tls_to_cleartext)
        run("TLS: cleartext client, server", self.cleartext_to_tls)
        run("TLS: no client certificate", self.no_client_certificate)
        run("TLS: client certificate of another authority", self.wrong_client_certificate)

    def fails(self, target, code, *fragments, deadline=20000, limit=None, styles=("blocking", "callback"), **more):
        """Checks that a unary and a bidi call end with one of the codes in `code`, in time, and that a message has one
        of `fragments`."""
        for told in self.calls(target, deadline=deadline, styles=styles, **more):
            where = f"{told['call']} {told['style']}: "
            check(told["code"] in code.split("|"), f"{where}{told['code']} \"{told['message']}\", expected {code}")
            check(not fragments or any(part.lower() in told["message"].lower() for part in fragments),
                  f"{where}the message is \"{told['message']}\", without any of {fragments}")
            check_equal(told["messages"], 0, where + "messages")
            check_left(told, deadline)
            check(told["ms"] < (limit or deadline + PROMPT), f"{where}{told['ms']} ms")

    @contextlib.contextmanager
    def bound(self, listens=None):
        """A port of 127.0.0.1 that no other process gets. With `listens`, the size of the backlog, its socket listens, but
        never accepts."""
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            if listens is not None:
                holder.listen(listens)
            yield f"127.0.0.1:{holder.getsockname()[1]}"

    def refused(self, style):
        with self.bound() as address:
            self.fails(address, "UNAVAILABLE", "refused", styles=(style,), limit=PROMPT, repeat=self.repeats)

    def no_such_name(self):
        self.fails("no-such-host.invalid:443", "UNAVAILABLE", "no-such-host.invalid", deadline=20000)

    def no_socket_file(self, style):
        self.fails(f"unix:{self.folder}/nothing.sock", "UNAVAILABLE", "no such file", styles=(style,), limit=PROMPT,
                   repeat=self.repeats)

    def plain_file(self):
        path = self.folder / "plain"
        path.write_text("not a socket")
        self.fails(f"unix:{path}", "UNAVAILABLE", "refused", limit=PROMPT)

    def second_address(self):
        with self.bound() as dead, peer() as server:
            for told in self.calls(f"ipv4:{dead},{server.address}"):
                check_equal(told["code"], "OK", told["message"])
                check_equal(told["messages"], 1)
                check_left(told, 20000)

    def no_address(self):
        with self.bound() as one, self.bound() as other:
            self.fails(f"ipv4:{one},{other}", "UNAVAILABLE", "refused", limit=PROMPT)

    def silent_socket(self, style):
        with self.bound(16) as address:
            self.fails(address, "DEADLINE_EXCEEDED", deadline=300, styles=(style,))

    def silent_cleartext(self):
        """A connection is made when the server's SETTINGS have come; until then connect_timeout_ms applies."""
        with self.bound(16) as address:
            self.fails(address, "UNAVAILABLE", deadline=20000, limit=PROMPT, channel={"connect_timeout_ms": 300})

    def silent_tls(self, deadline, connect_timeout):
        channel = {"connect_timeout_ms": connect_timeout} if connect_timeout else {}
        with self.bound(16) as address:
            self.fails(address, "UNAVAILABLE" if connect_timeout else "DEADLINE_EXCEEDED", deadline=deadline, limit=PROMPT,
                       tls=self.certificates.client_options(), channel=channel)

    def full_backlog(self, deadline, connect_timeout):
        """The kernel drops connections beyond the backlog: connect neither succeeds nor fails."""
        with self.bound(0) as address, contextlib.ExitStack() as stack:
            host, port = address.split(":")
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex((host, int(port)))
            channel = {"connect_timeout_ms": connect_timeout} if connect_timeout else {}
            self.fails(address, "UNAVAILABLE" if connect_timeout else "DEADLINE_EXCEEDED", deadline=deadline, limit=PROMPT,
                       channel=channel)

    # ---- Processes that die or are stopped ----

    def client_process(self, target, method, style, *arguments, options=None):
        return Process([self.interop_client, "--target", target, "--style", style, "--options", json.dumps(options or {}),
                        *arguments, "--call", method])

    def killed(self, style):
        with peer() as server, self.client_process(server.address, "/penstock.Echo/Bidi", style, "--kind", "bidi", "--gate",
                                                   "messages", "--send", "61", "--send", "62",
                                                   options={"deadline_ms": 20000}) as client:
            client.told(received=1)
            server.popen.kill()
            server.popen.wait()
            client.say()
            told = client.told(name=...)
            check_equal(told["name"], "UNAVAILABLE", bytes.fromhex(told["message"]))
            check(told["stats"]["duration_us"] < PROMPT * 1000, "it took the deadline to notice")
            check_equal(client.wait()[0], 0, "exit status")

    def stopped_stream(self, style):
        with peer() as server, self.client_process(server.address, "/penstock.Echo/Bidi", style, "--kind", "bidi", "--gate",
                                                   "messages", "--send", "61", "--send", "62",
                                                   options={"deadline_ms": 1500}) as client:
            client.told(received=1)
            server.signal(signal.SIGSTOP)
            client.say()
            told = client.told(name=...)
            check_equal(told["name"], "DEADLINE_EXCEEDED", bytes.fromhex(told["message"]))
            check(1_450_000 <= told["stats"]["duration_us"] < (1500 + PROMPT) * 1000, told["stats"]["duration_us"])
            check_equal(client.wait()[0], 0, "exit status")

    def stopped_keepalive(self, style):
        with peer() as server, Process([
                self.interop_client, "--target", server.address, "--style", style, "--channel",
                json.dumps({"tls": False, "keepalive_time_ms": 1000, "keepalive_timeout_ms": 200}), "--options",
                json.dumps({"deadline_ms": 20000}), "--kind", "bidi", "--gate", "messages", "--send", "61", "--send", "62",
                "--call", "/penstock.Echo/Bidi"]) as client:
            client.told(received=1)
            server.signal(signal.SIGSTOP)
            client.say()
            told = client.told(name=...)
            words = bytes.fromhex(told["message"]).decode()
            check_equal(told["name"], "UNAVAILABLE", words)
            check(words.startswith(f"no answer to a keepalive ping from {server.address} within 200 ms"), words)
            check(told["stats"]["connection_silent_ms"] >= 1200, told["stats"]["connection_silent_ms"])
            check(told["stats"]["duration_us"] < 15_000_000, told["stats"]["duration_us"])
            check_equal(client.wait()[0], 0, "exit status")

    def stopped_unary(self, style):
        with peer() as server, self.client_process(server.address, "/penstock.Echo/Unary", style, "--calls", "2", "--gate",
                                                   "calls", "--send", "61", options={"deadline_ms": 1500}) as client:
            client.told(ended=1)
            server.signal(signal.SIGSTOP)
            client.say()
            told = client.told(name=...)
            check_equal(told["name"], "DEADLINE_EXCEEDED", bytes.fromhex(told["message"]))
            check(1_450_000 <= told["stats"]["duration_us"] < (1500 + PROMPT) * 1000, told["stats"]["duration_us"])
            check_equal(client.wait()[0], 0, "exit status")

    # ---- TLS ----

    @contextlib.contextmanager
    def tls_peer(self, name="server", host="127.0.0.1", mutual=False):
        with peer("--tls", *self.certificates.server_options(mutual, name)) as server:
            yield f"{host}:{server.address.rsplit(':', 1)[1]}"

    def wrong_certificate(self, name, host, fragments):
        with self.tls_peer(name, host) as target:
            self.fails(target, "UNAVAILABLE", *fragments, limit=PROMPT, tls=self.certificates.client_options())

    def memory_of_details(self, kind, name):
        """A status of 2.8 MB with 60,000 details takes at most three times its size more than a small one."""
        small = HERE / f"{name}.script"
        large = self.folder / f"large-{kind}.script"
        text = small.read_text()
        large.write_text(text.replace("repeat 60\n", "repeat 600\n").replace("prefix=2:282043", "prefix=2:2820043"))
        check(large.read_text().count("00") > text.count("00"), "the script is as small as before")
        small = HERE / ("http1-connect-error.script" if kind == "unary" else "http1-connect-stream-error.script")
        grown = self.peak(kind, large) - self.peak(kind, small)
        check(grown <= 3 * 2_820_043, f"{grown:,} bytes")

    def peak(self, kind, script):
        """The largest number of bytes of memory that a client of this script has had."""
        with peer("--script", script) as server:
            told, = self.calls(server.address, styles=("callback",), calls=kind, channel={"protocol": "connect"})
        return told["peak"]

    def partial_chain(self, root):
        """A certificate among the roots is trusted, also one that is not signed by itself."""
        with self.tls_peer("server" if root == "server" else "below") as target:
            for told in self.calls(target, tls={"roots_file": self.certificates.path(f"{root}.pem")}):
                check_equal(told["code"], "OK", told["message"])
        # Its name is checked all the same.
        with self.tls_peer("other") as target:
            self.fails(target, "UNAVAILABLE", "mismatch", limit=PROMPT,
                       tls={"roots_file": self.certificates.path("other.pem")})

    def other_anchor(self):
        """A certificate of the same authority is no root for the server's."""
        with self.tls_peer() as target:
            self.fails(target, "UNAVAILABLE", "issuer certificate", "unable to", limit=PROMPT,
                       tls={"roots_file": self.certificates.path("client.pem")})

    def verification_off(self):
        for name in ("other", "selfsigned", "expired"):
            with self.tls_peer(name) as target:
                for told in self.calls(target, tls={"verify": False}):
                    check_equal(told["code"], "OK", told["message"])

    def wrong_server_name(self):
        with self.tls_peer() as target:
            self.fails(target, "UNAVAILABLE", "mismatch", "host name", limit=PROMPT,
                       tls=self.certificates.client_options(server_name="elsewhere.example"))

    @contextlib.contextmanager
    def openssl_server(self, *options):
        with Process(["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", self.certificates.path("server.pem"),
                      "-key", self.certificates.path("server.key"), *options]) as server:
            accepts = server.line(lambda line: line.startswith("ACCEPT"))
            check(accepts is not None, f"openssl s_server: {server.seen}")
            yield accepts.split()[1]

    def alpn(self, *options):
        with self.openssl_server(*options) as address:
            self.fails(address, "UNAVAILABLE", "alpn", "h2", "application protocol", limit=PROMPT,
                       tls=self.certificates.client_options())

    def old_tls(self):
        with self.openssl_server("-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0", "-alpn", "h2") as address:
            self.fails(address, "UNAVAILABLE", "version", "protocol", limit=PROMPT, tls=self.certificates.client_options())

    def tls_to_cleartext(self):
        with peer() as server:
            self.fails(server.address, "UNAVAILABLE", "tls", "ssl", limit=PROMPT, tls=self.certificates.client_options())

    def cleartext_to_tls(self):
        with self.tls_peer() as target:
            self.fails(target, "UNAVAILABLE", "may want TLS", limit=PROMPT)

    def no_client_certificate(self):
        with self.tls_peer(mutual=True) as target:
            self.fails(target, "UNAVAILABLE", "asked for a client certificate", limit=PROMPT,
                       tls=self.certificates.client_options())

    def wrong_client_certificate(self):
        tls = self.certificates.client_options(certificate_chain_file=self.certificates.path("stranger.pem"),
                                               private_key_file=self.certificates.path("stranger.key"))
        with self.tls_peer(mutual=True) as target:
            self.fails(target, "UNAVAILABLE", "may not accept the channel's", limit=PROMPT, tls=tls)


def main():
    if not (harness.PEER.exists() and (harness.LIBRARY / "libpenstock.so").exists()):
        print("build/lib/libpenstock.so and build/bin/penstock-peer are needed: make lib peer")
        print("0 passed, 1 failed")
        return 1
    mode = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in ("valgrind", *preload.NAMES) else None
    suite = harness.Suite(sys.argv[2 if mode else 1:])
    with harness.workspace() as folder:
        if mode == "valgrind":
            faults = Faults(suite, folder)
            faults.valgrind()
            faults.section("valgrind")
        else:
            faults = Faults(suite, folder, mode)
            faults.local()
            faults.section("faults without a script")
            faults.scripts()
            faults.section("scripts")
            faults.over_protocols()
            faults.section("scripts over other protocols")
            faults.crowds()
            faults.section("a hundred calls at once")
            faults.over_tls()
            faults.section("scripts within TLS")
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
