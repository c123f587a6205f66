"""The faults that need no script: servers that are not there, do not answer, die or are stopped, and TLS that fails."""

import contextlib
import json
import signal
import socket

from faults import HERE, PROMPT, Faults, check_left
from harness import Process, check, check_equal, peer


class Local(Faults):
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
        run("deadline before the call is opened", self.too_late)
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

    def too_late(self):
        """The deadline has passed when the driving thread opens the call, as it may on a machine that is busy."""
        with peer() as server:
            self.fails(server.address, "DEADLINE_EXCEEDED", "before the request was sent", deadline=0, repeat=self.repeats)

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
