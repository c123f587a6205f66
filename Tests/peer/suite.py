"""Tests of penstock-peer with other projects' clients. The program `run` in this folder starts the suite."""

import base64
import gzip
import json
import pathlib
import subprocess
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import harness
import http1
import played
from harness import check, check_equal, peer
from http1 import GREETER, HELLO, envelope

# A google.rpc.Status with one detail, a probe.v1.Detail of three bytes.
DETAILS = base64.b64encode(b"\x08\x05\x1a\x2a\n\x23type.googleapis.com/probe.v1.Detail\x12\x03\x01\x02\xff").decode()
TRANSPORTS = ("1.1", "2", "1.1 tls", "2 tls")


class Peer:
    def __init__(self, suite, folder):
        self.suite = suite
        self.certificates = harness.Certificates(folder)
        self.folder = folder

    # ---- curl ----

    def curl(self, transport, path, *options, body=None):
        """Makes a request with curl. Returns the status, fields and body of the answer."""
        server = self.servers["tls" in transport]
        scheme = "https" if "tls" in transport else "http"
        version = "--http1.1" if "1.1" in transport else "--http2" if "tls" in transport else "--http2-prior-knowledge"
        command = ["curl", "-sS", "-i", "-g", version, "--max-time", "10", "--cacert",
                   self.certificates.path("ca.pem"), *options]
        if body is not None:
            command += ["--data-binary", "@-"]
        done = subprocess.run([*command, f"{scheme}://{server.address}{path}"], input=body, capture_output=True, check=False)
        check(done.returncode == 0, f"curl: {done.returncode} {done.stderr!r}")
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        check(lines[0].startswith(f"HTTP/{transport.split()[0]}"), lines)
        fields = [line.split(": ", 1) for line in lines[1:]]
        return int(lines[0].split()[1]), {name.lower(): value for name, value in fields}, answer

    def unary(self, transport):
        json_type = ("-H", "content-type: application/json")
        status, fields, body = self.curl(transport, GREETER, *json_type, "-d", '{"name":"x"}')
        check_equal((status, fields["content-type"], json.loads(body)),
                    (200, "application/json", {"message": "Hello, x!"}))
        status, fields, body = self.curl(
            transport, GREETER, "-H", "content-type: application/proto", "-H", "x-headers-a: 1", "-H", "x-trailers-b: 2",
            "-H", "connect-protocol-version: 1", body=b"\n\x01x")
        check_equal((status, fields["content-type"], fields["x-headers-a"], fields["trailer-x-trailers-b"], body),
                    (200, "application/proto", "1", "2", b"\n\x09Hello, x!"))
        status, fields, body = self.curl(transport, "/penstock.Echo/Unary", "-H", "content-type: application/x-own",
                                         "-H", "x-compress: gzip", "-H", "content-encoding: gzip",
                                         body=gzip.compress(bytes(5000)))
        check_equal((fields["content-type"], fields["content-encoding"], gzip.decompress(body)),
                    ("application/x-own", "gzip", bytes(5000)))

    def get(self, transport):
        query = "?encoding=json&message=%7B%22name%22%3A%22x+y%22%7D&connect=v1&other"
        check_equal(self.curl(transport, GREETER + query)[::2], (200, b'{"message":"Hello, x y!"}'))
        packed = base64.urlsafe_b64encode(gzip.compress(b"\xff\xfe" * 3000)).decode()
        for message in (packed, packed.rstrip("="), urllib.parse.quote(packed)):
            status, fields, body = self.curl(
                transport, f"/penstock.Echo/Unary?message={message}&encoding=proto&base64=1&compression=gzip")
            check_equal((status, fields["content-type"], body), (200, "application/proto", b"\xff\xfe" * 3000))
        for query, status, code in (
                ("?encoding=json", 400, "invalid_argument"), ("?encoding=proto&base64=1&message=!", 400, "invalid_argument"),
                ("?encoding=json&message=%", 400, "invalid_argument"), ("?encoding=json&message={", 400, "invalid_argument"),
                ("?encoding=json&message={}&connect=v2", 400, "invalid_argument"),
                ("?encoding=json&message={}&compression=br", 501, "unimplemented")):
            told, _, body = self.curl(transport, GREETER + query)
            check_equal((told, json.loads(body)["code"]), (status, code), query)

    def errors(self, transport):
        """Each code is sent with its HTTP status, its message and its details."""
        expected = {1: (499, "canceled"), 2: (500, "unknown"), 3: (400, "invalid_argument"), 4: (504, "deadline_exceeded"),
                    5: (404, "not_found"), 6: (409, "already_exists"), 7: (403, "permission_denied"),
                    8: (429, "resource_exhausted"), 9: (400, "failed_precondition"), 10: (409, "aborted"),
                    11: (400, "out_of_range"), 12: (501, "unimplemented"), 13: (500, "internal"), 14: (503, "unavailable"),
                    15: (500, "data_loss"), 16: (401, "unauthenticated"), 99: (500, "code_99")}
        for number, (status, code) in expected.items():
            told, fields, body = self.curl(
                transport, GREETER, "-H", "content-type: application/proto", "-H", f"x-status: {number}", "-H",
                'x-message: "säd" \\', "-H", f"x-details-bin: {DETAILS}", "-H", "x-trailers-a: 1", body=b"")
            check_equal((told, fields["content-type"], fields["trailer-x-trailers-a"]), (status, "application/json", "1"))
            check_equal(json.loads(body), {"code": code, "message": '"säd" \\',
                                           "details": [{"type": "probe.v1.Detail", "value": "AQL/"}]})
        for fields, body, status, code in (
                ("connect-protocol-version: 2", HELLO, 400, "invalid_argument"),
                ("connect-timeout-ms: x", HELLO, 400, "invalid_argument"),
                ("connect-timeout-ms: 12345678901", HELLO, 400, "invalid_argument"),
                ("content-encoding: br", HELLO, 501, "unimplemented"), ("content-encoding: gzip", HELLO, 500, "internal"),
                ("a: b", b"{", 400, "invalid_argument"), ("a: b", b'{"name":1}', 400, "invalid_argument")):
            told, _, answer = self.curl(transport, GREETER, "-H", "content-type: application/json", "-H", fields, body=body)
            check_equal((told, json.loads(answer)["code"]), (status, code), fields)
        told, _, answer = self.curl(transport, "/grpc.testing.TestService/UnaryCall", "-H", "content-type: application/json",
                                    body=b"{}")
        check_equal((told, json.loads(answer)["message"]), (501, "the method takes protobuf only"))

    def stream(self, transport):
        status, fields, body = self.curl(
            transport, "/penstock.Echo/ServerStream", "-H", "content-type: application/connect+x-own", "-H", "x-count: 3",
            "-H", "x-status: 5", "-H", "x-trailers-a: 1", "-H", "x-trailers-b: 2", "-H", "x-trailers-a: 3", "-H",
            f"x-details-bin: {DETAILS}", body=envelope(b"hi"))
        check_equal((status, fields["content-type"], body[:21]), (200, "application/connect+x-own", envelope(b"hi") * 3))
        check_equal(body[21], 2)
        check_equal(json.loads(body[26:]),
                    {"error": {"code": "not_found", "details": [{"type": "probe.v1.Detail", "value": "AQL/"}]},
                     "metadata": {"x-trailers-a": ["1", "3"], "x-trailers-b": ["2"]}})
        packed = gzip.compress(b"hi")
        _, fields, body = self.curl(
            transport, "/penstock.Echo/ClientStream", "-H", "content-type: application/connect+proto", "-H",
            "connect-content-encoding: gzip", "-H", "x-compress: gzip",
            body=envelope(packed, 1) + envelope(b"ho"))
        check_equal((fields["connect-content-encoding"], body[0]), ("gzip", 1))
        length = int.from_bytes(body[1:5], "big")
        check_equal((gzip.decompress(body[5:5 + length]), body[5 + length], gzip.decompress(body[10 + length:])),
                    (b"hiho", 3, b"{}"))
        _, _, body = self.curl(transport, "/penstock.Echo/Bidi", "-H", "content-type: application/connect+proto",
                               body=envelope(b"hi", 2))
        check_equal(json.loads(body[5:])["error"]["code"], "internal")

    def web(self, transport):
        for number, fields in ((0, ()), (5, ("-H", "x-status: 5", "-H", "x-message: a b"))):
            status, answer, body = self.curl(
                transport, "/penstock.Echo/ServerStream", "-H", "content-type: application/grpc-web+proto", "-H", "x-count: 2",
                "-H", "x-trailers-a: 1", *fields, body=envelope(b"hi"))
            check_equal((status, answer["content-type"], body[:14]),
                        (200, "application/grpc-web+proto", envelope(b"hi") * 2))
            end = f"grpc-status: {number}\r\n" + ("grpc-message: a b\r\n" if fields else "") + "x-trailers-a: 1\r\n"
            check_equal(body[14:], envelope(end.encode(), 0x80))
        status, answer, body = self.curl(
            transport, "/penstock.Echo/Unary", "-H", "content-type: application/grpc-web", "-H", "x-status: 7",
            body=envelope(b"hi"))
        check_equal((status, answer["grpc-status"], body), (200, "7", b""))

    def text(self, transport):
        """The base64 of a request may have padding after each message. The server pads each envelope of its answer."""
        messages = [b"a", b"bc", b"def", bytes(20_000)]
        body = b"".join(base64.b64encode(envelope(message)) for message in messages)
        status, fields, answer = self.curl(
            transport, "/penstock.Echo/Bidi", "-H", "content-type: application/grpc-web-text", body=body)
        check_equal((status, fields["content-type"]), (200, "application/grpc-web-text"))
        check_equal(answer, body + base64.b64encode(envelope(b"grpc-status: 0\r\n", 0x80)))
        for wrong in (b"AAAA?AAA", b"AAA"):
            _, fields, answer = self.curl(
                transport, "/penstock.Echo/ClientStream", "-H", "content-type: application/grpc-web-text", body=wrong)
            check_equal(fields["grpc-status"], "13", answer)

    def prefixed(self):
        with peer("--prefix", "/api/v1") as self.servers[False]:
            for path, status in ((f"/api/v1{GREETER}", 200), (GREETER, 501), (f"/other{GREETER}", 501)):
                told = self.curl("1.1", path, "-H", "content-type: application/json", body=HELLO)
                check_equal(told[0], status, path)

    def versions(self):
        """With --http, the server speaks only one version. ALPN then selects this version, or none."""
        for only, other in (("1.1", "2"), ("2", "1.1")):
            with peer("--http", only) as self.servers[False], \
                    peer("--http", only, "--tls", *self.certificates.server_options()) as self.servers[True]:
                for tls in ("", " tls"):
                    told = self.curl(only + tls, GREETER, "-H", "content-type: application/json", body=HELLO)
                    check_equal(told[0], 200)
                    try:
                        told = self.curl(other + tls, GREETER, "-H", "content-type: application/json", body=HELLO)
                    except harness.Failure:
                        continue
                    check(False, f"HTTP/{other}{tls}: {told}")

    # ---- All ----

    def run(self):
        run = self.suite.run
        for test in (self.prefixed, self.versions):
            self.servers = {}
            run(test.__name__, test)
        options = ("--tls", *self.certificates.server_options())
        with peer("--print-requests") as plain, peer("--print-requests", *options) as tls:
            self.servers = {False: plain, True: tls}
            for transport in TRANSPORTS:
                for test in (self.unary, self.get, self.errors, self.stream, self.web, self.text):
                    run(f"curl {test.__name__} {transport}", test, transport)
            self.suite.section("curl")
            http1.run(self.suite, plain)
            self.suite.section("HTTP/1.1")
            played.run(self.suite, self.folder)
            self.suite.section("scripts")
            import through_connectrpc
            through_connectrpc.run(self.suite, self.servers, self.certificates)
            self.suite.section("connectrpc")


def main():
    suite = harness.Suite(sys.argv[1:])
    with harness.workspace() as folder:
        Peer(suite, folder).run()
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
