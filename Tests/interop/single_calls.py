"""Single calls of this library's client, compared with the server's view."""

import base64
import itertools
import json
import random

from harness import ROOT, STYLES, Process, channel_options, check, check_equal, grpcio, peer

SERVICE = "/grpc.testing.TestService/"


class SingleCalls:
    def __init__(self, suite, folder, program, certificates):
        self.suite = suite
        self.folder = folder
        self.program = program
        self.certificates = certificates

    def start(self, target, method, *arguments, style="blocking", tls=False, options=None, **channel):
        command = [self.program, "--target", target, "--style", style, "--channel", channel_options(tls, **channel)]
        if options is not None:
            command += ["--options", json.dumps(options)]
        return Process([*command, *arguments, "--call", method])

    def call(self, target, method, *arguments, **more):
        """Makes one call up to its end; gives the client's report."""
        with self.start(target, method, *arguments, **more) as process:
            told = process.told(code=...)
            status, lines = process.wait()
            check_equal(status, 0, f"exit status of the client: {lines}")
            return told

    def run(self):
        run = self.suite.run
        with grpcio() as server:
            for style in STYLES:
                run(f"metadata seen by grpcio, {style}", self.metadata_seen, server, style)
            for seed in range(20):
                run(f"random metadata seen by grpcio, seed {seed}", self.random_metadata, server, seed)
            run("metadata as JSON, padding optional", self.padding, server)
            run("metadata set as JSON by a hop", self.set_json, server)
            run("metadata back from grpcio", self.metadata_back, server)
            run("metadata of six kilobytes", self.large_metadata, server)
            run("user-agent", self.user_agent, server)
            for milliseconds in (700, 5000, 90_000, 3_600_000, 864_000_000, 9_000_000_000):
                run(f"deadline seen by grpcio, {milliseconds} ms", self.deadline_seen, server, milliseconds)
            run("no deadline seen by grpcio", self.no_deadline_seen, server)
            run("default deadline seen by grpcio", self.default_deadline_seen, server)
            for style in STYLES:
                run(f"cancel seen by grpcio, {style}", self.cancel_seen, server, style)
                run(f"deadline ends the call at grpcio, {style}", self.deadline_ends, server, style)
            run("client killed, seen by grpcio", self.client_killed, server)
            run("1,000 streams at once, seen by grpcio", self.streams_seen, server)
            run("error details from grpcio", self.error_details, server.address)
            run("malformed error details from grpcio", self.malformed_details, server.address)
            run("authority seen by grpcio", self.authority_seen, server)
        with peer() as server:
            run("error details from the peer", self.error_details, server.address)
            run("malformed error details from the peer", self.malformed_details, server.address)
            run("all sixteen status codes", self.status_codes, server.address)
            run("headers on the wire", self.headers_on_wire, server.address)
            run("a binary value that is joined by commas", self.joined_values, server.address)
        for style in STYLES:
            run(f"graceful stop of grpcio, {style}", self.graceful_stop, style)
            run(f"the server comes back, {style}", self.server_comes_back, style)
        run("TLS: authority and host name", self.tls_names)
        run("TLS 1.2 server", self.tls_versions)

    keys = itertools.count(1)

    def reported(self, server, *arguments, key=None, **more):
        """Makes a unary call that the server reports; gives the client's and the server's report."""
        key = key or f"key-{next(self.keys)}"
        told = self.call(server.address, SERVICE + "EmptyCall", "--add", f"x-report={key.encode().hex()}", *arguments,
                         **more)
        check_equal(told["name"], "OK", f"status, {bytes.fromhex(told['message'])}")
        seen = server.told(seen=key)
        server.told(ended=key)
        return told, seen

    @staticmethod
    def pairs(listed, prefix="m-"):
        return [(name, bytes.fromhex(value)) for name, value in listed if name.startswith(prefix)]

    def check_seen(self, server, sent, **more):
        """Checks that all metadata pairs that a hop adds one by one arrive, in their order and byte by byte."""
        added = itertools.chain.from_iterable(("--add", f"{name}={value.hex()}") for name, value in sent)
        _, seen = self.reported(server, *added, **more)
        check_equal(self.pairs(seen["metadata"]), [(name.lower(), value) for name, value in sent], "metadata seen")

    def metadata_seen(self, server, style):
        self.check_seen(server, [
            ("m-one", b"1"), ("m-two", b"with two words"), ("m-one", b"again"), ("m-three", b"!\"#$%&'()*+,-./:;<=>?@"),
            ("m-bytes-bin", bytes(range(256))), ("m-bytes-bin", b"\x00"), ("m-bytes-bin", b""),
            ("m-bytes-bin", b"\xff\xfe\xfd"), ("m-one", b"last"), ("M-Upper", b"Kept As It Is"),
            ("m-with_all.of-it", b"~")], style=style)

    def random_metadata(self, server, seed):
        chance = random.Random(seed)
        sent = []
        for _ in range(chance.randrange(1, 25)):
            binary = chance.random() < 0.5
            name = "m-" + chance.choice("abcdef") + ("-bin" if binary else "")
            size = chance.choice((0, 1, 2, 3, 4, 5, 30, 127, 200)) if binary else chance.randrange(1, 60)
            value = (chance.randbytes(size) if binary else
                     bytes(chance.randrange(0x21, 0x7F) for _ in range(size)))
            sent.append((name, value))
        self.check_seen(server, sent)

    def padding(self, server):
        """Checks what the documentation promises: "-bin" values are base64, padding is optional on input, and the values of
        a name keep their order."""
        values = [b"", b"a", b"ab", b"abc", b"abcd", bytes(range(64))]
        padded = [base64.b64encode(value).decode() for value in values]
        for texts in (padded, [text.rstrip("=") for text in padded]):
            _, seen = self.reported(server, options={"metadata": {
                "m-a-bin": texts, "m-b": ["x", "y"], "m-c": "bare", "m-d-bin": texts[1]}})
            found = {}
            for name, value in self.pairs(seen["metadata"]):
                found.setdefault(name, []).append(value)
            check_equal(found, {"m-a-bin": values, "m-b": [b"x", b"y"], "m-c": [b"bare"], "m-d-bin": [b"a"]})

    def set_json(self, server):
        """A hop replaces all metadata by JSON: the caller's values are gone."""
        key = f"key-{next(self.keys)}"
        whole = {"x-report": key, "m-hop": ["1", "2"], "m-hop-bin": "AAEC"}
        told = self.call(server.address, SERVICE + "EmptyCall", "--set-json", json.dumps(whole),
                         options={"metadata": {"m-caller": "lost"}})
        seen = server.told(seen=key)
        check_equal(told["name"], "OK")
        check_equal(sorted(self.pairs(seen["metadata"])),
                    [("m-hop", b"1"), ("m-hop", b"2"), ("m-hop-bin", b"\x00\x01\x02")])

    def metadata_back(self, server):
        sent = [("x-headers-a", b"1"), ("x-headers-b", b"b c"), ("x-headers-a", b"2"), ("x-headers-c-bin", b"\x00\xff"),
                ("x-headers-c-bin", b""), ("x-trailers-bin", bytes(range(256))), ("x-trailers-z", b"z"),
                ("x-trailers-bin", b"end")]
        added = itertools.chain.from_iterable(("--add", f"{name}={value.hex()}") for name, value in sent)
        for style in STYLES:
            told = self.call(server.address, SERVICE + "FullDuplexCall", "--kind", "bidi", *added, style=style)
            check_equal(told["name"], "OK")
            for part in ("headers", "trailers"):
                wanted = [pair for pair in sent if pair[0].startswith(f"x-{part}")]
                check_equal(self.pairs(told[part], "x-"), wanted, part)
                as_json = {}
                for name, value in wanted:
                    as_json.setdefault(name, []).append(
                        base64.b64encode(value).decode() if name.endswith("-bin") else value.decode())
                check_equal({name: values for name, values in told[f"{part}_json"].items() if name.startswith("x-")},
                            as_json, f"{part} as JSON")
            check_equal(self.pairs(told["early_headers"], "x-"), self.pairs(told["headers"], "x-"), "early headers")
            added = itertools.chain.from_iterable(("--add", f"{name}={value.hex()}") for name, value in sent)

    def large_metadata(self, server):
        self.check_seen(server, [(f"m-{number:03}", b"v" * 40) for number in range(60)])
        self.check_seen(server, [("m-one-bin", bytes(3000))])

    def user_agent(self, server):
        version = next(line.split('"')[1] for line in (ROOT / "include/penstock/version.h").read_text().splitlines()
                       if line.startswith("#define PENSTOCK_VERSION "))
        _, seen = self.reported(server)
        check_equal(self.pairs(seen["metadata"], "user-agent"), [("user-agent", f"penstock/{version}".encode())])
        _, seen = self.reported(server, user_agent="mine/1")
        check_equal(self.pairs(seen["metadata"], "user-agent"), [("user-agent", f"mine/1 penstock/{version}".encode())])

    def check_remaining(self, seen, milliseconds):
        remaining = seen["remaining"]
        check(remaining is not None and milliseconds / 1000 * 0.5 < remaining <= milliseconds / 1000 * 1.02 + 0.01,
              f"{remaining} s remain at the server, of {milliseconds} ms")

    def deadline_seen(self, server, milliseconds):
        _, seen = self.reported(server, options={"deadline_ms": milliseconds})
        self.check_remaining(seen, milliseconds)

    def no_deadline_seen(self, server):
        _, seen = self.reported(server)
        check(seen["remaining"] is None or seen["remaining"] > 1e9, seen["remaining"])

    def default_deadline_seen(self, server):
        _, seen = self.reported(server, default_deadline_ms=30_000)
        self.check_remaining(seen, 30_000)
        _, seen = self.reported(server, default_deadline_ms=30_000, options={"deadline_ms": 9000})
        self.check_remaining(seen, 9000)
        _, seen = self.reported(server, default_deadline_ms=30_000, options={"metadata": {"m-x": "y"}})
        self.check_remaining(seen, 30_000)

    def cancel_seen(self, server, style):
        """Checks what the documentation promises: a cancel from any thread ends the call at the server, too
        (RST_STREAM(CANCEL))."""
        for cancel_after in (0, 1):
            key = f"key-{next(self.keys)}"
            # response_parameters { size: 3 }
            told = self.call(server.address, SERVICE + "FullDuplexCall", "--kind", "bidi", "--send", "12020803",
                             "--cancel-after", str(cancel_after), style=style,
                             options={"metadata": {"x-report": key, "x-hold-after": "for ever"}})
            check_equal((told["name"], bytes.fromhex(told["message"])), ("CANCELLED", b"cancelled by the test"))
            check_equal(len(told["messages"]), cancel_after, "messages")
            server.told(seen=key)
            ended = server.told(ended=key)
            check(ended["cancelled"], f"the handler ended otherwise: {ended}")

    def deadline_ends(self, server, style):
        key = f"key-{next(self.keys)}"
        told = self.call(server.address, SERVICE + "UnaryCall", style=style,
                         options={"deadline_ms": 300, "metadata": {"x-report": key, "x-hold": "for ever"}})
        check_equal(told["name"], "DEADLINE_EXCEEDED")
        server.told(seen=key)
        ended = server.told(ended=key)
        check(ended["cancelled"], f"the handler ended otherwise: {ended}")

    def client_killed(self, server):
        key = f"key-{next(self.keys)}"
        with self.start(server.address, SERVICE + "FullDuplexCall", "--kind", "bidi", "--gate", "messages", "--send",
                        "12020803", options={"metadata": {"x-report": key, "x-hold-after": "for ever"}}) as client:
            client.told(received=1)
            server.told(seen=key)
            client.popen.kill()
            check(server.told(ended=key)["cancelled"], "the handler ended otherwise")

    def streams_seen(self, server):
        with Process([self.program, "--target", server.address, "--style", "callback", "streams_1000"]) as client:
            status, lines = client.wait()
            check(status == 0 and any(line.startswith("ok streams_1000") for line in lines), lines)
        _, seen = self.reported(server)
        check(seen["most"] >= 1000, f"at most {seen['most']} calls were open at once")

    def authority_seen(self, server):
        """grpcio does not show :authority to handlers, so this only checks that the server accepts one."""
        for options in ({"authority": "some.example"}, {"authority": "some.example:443"}):
            told = self.call(server.address, SERVICE + "EmptyCall", options=options)
            check_equal(told["name"], "OK")

    # ---- Errors ----

    @staticmethod
    def field(number, value):
        """Encodes a field of protobuf: a varint for an integer, otherwise length-delimited."""
        def varint(value):
            out = bytearray()
            while value > 0x7F:
                out.append(value & 0x7F | 0x80)
                value >>= 7
            out.append(value)
            return bytes(out)

        if isinstance(value, int):
            return varint(number << 3) + varint(value)
        return varint(number << 3 | 2) + varint(len(value)) + value

    def fail(self, address, details, message="no such thing: \u263a"):
        """Makes a call that ends with NOT_FOUND and these details. Its request asks grpcio's server for them, and its
        metadata asks penstock-peer."""
        field = self.field
        status = field(1, 5) + field(2, message.encode())
        return self.call(address, SERVICE + "UnaryCall", "--send", field(7, status).hex(),
                         "--add", "x-status=" + b"5".hex(), "--add", "x-message-bin=" + message.encode().hex(),
                         "--add", "x-details-bin=" + details.hex())

    def error_details(self, address):
        field = self.field
        url = "type.googleapis.com/google.rpc."
        message = "no such thing: \u263a"
        details = [
            (url + "ErrorInfo", field(1, b"STALE") + field(2, b"example.com") +
             field(3, field(1, b"key") + field(2, b"value"))),
            (url + "RetryInfo", field(1, field(1, 3) + field(2, 500_000_000))),
            (url + "BadRequest", field(1, field(1, b"name") + field(2, b"is empty"))),
            ("example.com/penstock.Complaint", field(1, b"noise") + field(2, 3)),
        ]
        status = field(1, 5) + field(2, message.encode())
        for name, value in details:
            status += field(3, field(1, name.encode()) + field(2, value))
        told = self.fail(address, status, message)
        check_equal((told["name"], bytes.fromhex(told["message"]).decode()), ("NOT_FOUND", message))
        check_equal([(name, bytes.fromhex(value)) for name, value in told["details"]], details, "details")
        told_json = told["status"]["details"]
        check_equal([detail["@type"] for detail in told_json], [name for name, _ in details], "types in the JSON")
        check_equal(told_json[0]["reason"], "STALE")
        check_equal(told_json[0]["metadata"], {"key": "value"})
        check("is empty" in json.dumps(told_json[2]), told_json[2])
        check_equal(base64.b64decode(told_json[3]["base64"]), details[3][1], "an application's own detail")
        check_equal(told["messages"], [], "messages")

    def malformed_details(self, address):
        """Checks what the documentation promises: details that can't be decoded do not change the status, and never cause
        another error."""
        told = self.fail(address, b"\x0a\xff\xff\xff\xff")
        check_equal(told["name"], "NOT_FOUND")
        check_equal(told["details"], [])
        check("details_error" in told["status"], told["status"])

    def status_codes(self, address):
        for code in range(1, 17):
            message = f"code {code}: 100% of it"
            told = self.call(address, SERVICE + "UnaryCall", "--add", f"x-status={str(code).encode().hex()}", "--add",
                             f"x-message={message.encode().hex()}")
            check_equal((told["code"], bytes.fromhex(told["message"]).decode()), (code, message))
            check_equal(told["status"]["name"], told["name"])

    def headers_on_wire(self, address):
        """The headers of a request are those of gRPC over HTTP2, "Requests"."""
        told = self.call(address, "/penstock.Echo/Unary", "--add", "x-echo-metadata=31", "--add", "m-bin=00ff",
                         options={"deadline_ms": 5000, "authority": "who.example"})
        seen = dict(self.pairs(told["trailers"], "seen-"))
        check_equal(seen["seen-method"], b"POST")
        check_equal(seen["seen-scheme"], b"http")
        check_equal(seen["seen-path"], b"/penstock.Echo/Unary")
        check_equal(seen["seen-authority"], b"who.example")
        check_equal(seen["seen-te"], b"trailers")
        check(seen["seen-content-type"] in (b"application/grpc", b"application/grpc+proto"), seen["seen-content-type"])
        check(b"gzip" in seen["seen-grpc-accept-encoding"], seen["seen-grpc-accept-encoding"])
        check(seen["seen-grpc-timeout"][-1:] in b"mun" and len(seen["seen-grpc-timeout"]) <= 9, seen["seen-grpc-timeout"])
        found = base64.b64encode(b"\x00\xff")
        wire = dict(told["trailers"])["seen-m-bin"]
        # The peer sends the header's text back as `seen-m-bin`, so this client has decoded it.
        check_equal(bytes.fromhex(wire), b"\x00\xff", f"m-bin, {found}")
        names = [name for name, _ in told["trailers"] if name.startswith("seen-")]
        check_equal(names[:4] and all(name[5:] in ("method", "scheme", "path", "authority") for name in names[:4]), True,
                    "pseudo-headers come first")

    def joined_values(self, address):
        """gRPC over HTTP2, Custom-Metadata: values of -bin names may be joined by commas."""
        joined = base64.b64encode(b"a").decode().rstrip("=") + "," + base64.b64encode(b"bc").decode()
        # A script sends the text as it is; a server library would encode it again.
        with peer("--script", self.script(f"""
            handshake
            expect headers
            headers
              :status: 200
              content-type: application/grpc
              x-joined-bin: {joined}
            data message="ok"
            trailers
              grpc-status: 0
            """)) as server:
            told = self.call(server.address, "/penstock.Echo/Unary", "--send", "00")
            check_equal(told["name"], "OK")
            check_equal(self.pairs(told["headers"], "x-"), [("x-joined-bin", b"a"), ("x-joined-bin", b"bc")])

    def script(self, text):
        path = self.folder / f"story-{next(self.keys)}.script"
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        path.write_text("\n".join(line[indent:] for line in lines) + "\n")
        return path

    # ---- The server goes, and comes back ----

    def graceful_stop(self, style):
        """GOAWAY with calls in flight: they go on to their end."""
        with grpcio() as server, self.start(server.address, SERVICE + "FullDuplexCall", "--kind", "bidi", "--gate",
                                            "messages", *["--send", "12020803"] * 3, style=style) as client:
            client.told(received=1)
            server.say("stop")
            server.told(stopping=True)
            client.say()
            client.told(received=2)
            client.say()
            client.told(received=3)
            client.say()
            told = client.told(name=...)
            check_equal(told["name"], "OK", bytes.fromhex(told["message"]))
            server.told(stopped=True)

    def server_comes_back(self, style):
        """A channel whose connection has died makes another connection for a wait-for-ready call."""
        with peer() as first:
            address = first.address
            client = self.start(address, "/penstock.Echo/Unary", "--send", "6162", "--calls", "3", "--gate", "calls",
                                style=style, options={"wait_for_ready": True, "deadline_ms": 2000})
            check_equal(client.told(ended=1)["code"], 0)
        # No server listens now.
        client.say()
        check_equal(client.told(ended=2)["code"], 4, "while the server is away")
        with peer("--listen", address), client:
            client.say()
            told = client.told(name=...)
            check_equal((told["name"], told["messages"]), ("OK", ["6162"]), bytes.fromhex(told["message"]))

    # ---- TLS ----

    def tls_names(self):
        with peer("--tls", *self.certificates.server_options()) as server:
            port = server.address.rsplit(":", 1)[1]
            for target, more in ((f"localhost:{port}", {}), (server.address, {}),
                                 (server.address, {"server_name": "localhost"})):
                told = self.call(target, "/penstock.Echo/Unary", "--add", "x-echo-metadata=31",
                                 tls=self.certificates.client_options(**more))
                check_equal(told["name"], "OK", f"{target} {more}: {bytes.fromhex(told['message'])}")
                check_equal(dict(self.pairs(told["trailers"], "seen-"))["seen-scheme"], b"https")
            roots = (self.folder / "ca.pem").read_text()
            told = self.call(server.address, "/penstock.Echo/Unary", tls={"roots_pem": roots})
            check_equal(told["name"], "OK")

    def tls_versions(self):
        """The server is `openssl s_server` with TLS 1.2 only. It does not speak HTTP/2, so the call cannot be
        answered. The status shows that the handshake was done: it is DEADLINE_EXCEEDED, and no failure of TLS."""
        with Process(["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", self.certificates.path("server.pem"),
                      "-key", self.certificates.path("server.key"), "-alpn", "h2", "-tls1_2"]) as server:
            accepted = server.line(lambda line: line.startswith("ACCEPT"))
            address = accepted.split()[1] if accepted else ""
            told = self.call(address, "/penstock.Echo/Unary", tls=self.certificates.client_options(),
                             options={"deadline_ms": 500})
            check_equal(told["name"], "DEADLINE_EXCEEDED", bytes.fromhex(told["message"]))
