"""The suite of calls to other projects' servers, over Connect and gRPC-Web. The program `run` in this folder starts
it."""

import importlib.util
import pathlib
import sys

import harness
import single
import through_envoy
from cases import Cases
from programs import Programs
from routes import ALL, CONNECT, GET, GRPC, TEXT, WEB, Nginx, Pyvoy, Translating, grpcio, over, route, server

# Envoy's filters do not know JSON, and not grpcio's reports about compression. The server sees Envoy's address as the
# client's.
TRANSLATED = frozenset({"streams", "up", "empty", "state", "translates", "resets"})
# WSGI applications get the whole request before they answer, and are not told that a call was cancelled.
WSGI = frozenset({"json", "gzip", "zstd", "headers first"}) | GET


class Connect:
    def __init__(self, suite, folder):
        self.suite = suite
        self.folder = folder
        self.certificates = harness.Certificates(folder)
        self.roots = self.certificates.client_options()
        self.programs = Programs(suite)

    def python(self, each):
        if any(self.suite.wants(f"{each.name} {name[5:]}") for name in dir(Cases) if name.startswith("case_")):
            Cases(each).run(self.suite)

    def both(self, *routes):
        """Runs all Python cases and the C program's cases on each route."""
        for each in routes:
            self.python(each)
            self.programs.run(each)

    def secure(self):
        return ["--cert", self.certificates.path("server.pem"), "--key", self.certificates.path("server.key")]

    # ---- connectrpc ----

    def uvicorn(self):
        with server("uvicorn", *self.secure()) as found:
            can = over("1.1", ALL | GET)
            self.both(
                route("uvicorn connect", found.address, CONNECT, "", can | {"heavy", "half"}),
                route("uvicorn connect tls", found.tls, CONNECT, "", can, tls=self.roots),
                route("uvicorn grpc-web", found.address, WEB, "", over("1.1", ALL)))

    def hypercorn(self):
        """hypercorn 0.18 loses its HTTP/2 connection when data arrives for a stream that it has already answered. It
        may also send nothing more on a connection after a stream on it was reset."""
        with server("hypercorn", *self.secure()) as found:
            one, two = over("1.1", ALL), over("2", ALL - {"resets"})
            self.both(
                route("hypercorn connect h2c", found.address, CONNECT, "2", two | GET | {"heavy"}),
                route("hypercorn connect h1", found.address, CONNECT, "1.1", one | GET),
                route("hypercorn connect tls", found.tls, CONNECT, "", two | GET, tls=self.roots),
                route("hypercorn connect h1 tls", found.tls, CONNECT, "1.1", one | GET, tls=self.roots),
                route("hypercorn grpc h2c", found.address, GRPC, "2", two),
                route("hypercorn grpc-web h2c", found.address, WEB, "2", two),
                route("hypercorn grpc-web h1", found.address, WEB, "1.1", one),
                route("hypercorn grpc-web tls", found.tls, WEB, "", two, tls=self.roots))

    def wsgi(self):
        with server("wsgi") as found:
            self.both(
                route("wsgi connect h1", found.address, CONNECT, "1.1", WSGI | {"streams", "up"}),
                route("wsgi connect h2c", found.address, CONNECT, "2", WSGI | {"streams", "up"}))
        with server("wsgiref") as found:
            self.both(route("wsgiref connect", found.address, CONNECT, "1.1", WSGI - GET))

    def pyvoy(self):
        program = pathlib.Path(sys.executable).parent / "pyvoy"
        if not self.suite.there("pyvoy", program.exists()):
            return
        with Pyvoy(self.certificates) as found:
            # pyvoy 1.3 does not end its answer to an HTTP/1.1 request without a body.
            one, two = over("1.1", ALL - {"empty"}), over("2", ALL)
            self.both(
                route("pyvoy connect h2c", found.address, CONNECT, "2", two | GET | {"heavy", "thousand"}),
                route("pyvoy connect h1", found.address, CONNECT, "1.1", one | GET),
                route("pyvoy connect tls", found.tls, CONNECT, "", two | GET, tls=self.roots),
                route("pyvoy grpc tls", found.tls, GRPC, "", two, tls=self.roots),
                route("pyvoy grpc-web h2c", found.address, WEB, "2", two),
                route("pyvoy grpc-web h1 tls", found.tls, WEB, "1.1", one, tls=self.roots))
        with Pyvoy(self.certificates, "wsgi") as found:
            self.both(
                route("pyvoy wsgi connect h1", found.address, CONNECT, "1.1", WSGI | {"streams", "up"}),
                route("pyvoy wsgi connect h2c", found.address, CONNECT, "2", WSGI | {"streams", "up"}))

    # ---- Proxies ----

    def envoy(self):
        if not self.suite.there("envoy", through_envoy.program()):
            return
        one, two = over("1.1", TRANSLATED), over("2", TRANSLATED)

        def routes(proxy):
            plain, tls = proxy.plain.address, proxy.tls.address
            return (
                route("envoy grpc-web h1", plain, WEB, "1.1", one | {"heavy"}),
                route("envoy grpc-web h2c", plain, WEB, "2", two),
                route("envoy grpc-web tls", tls, WEB, "", two, tls=self.roots),
                route("envoy grpc-web h1 tls", tls, WEB, "1.1", one, tls=self.roots),
                route("envoy grpc-web-text h1", plain, TEXT, "1.1", one),
                route("envoy grpc-web-text h2c", plain, TEXT, "2", two | {"heavy", "thousand"}),
                route("envoy grpc-web-text tls", tls, TEXT, "", two, tls=self.roots),
                route("envoy connect h1", plain, CONNECT, "1.1", one | GET | {"bridge"}),
                route("envoy connect h2c", plain, CONNECT, "2", two | GET | {"bridge"}),
                route("envoy connect tls", tls, CONNECT, "", two | GET | {"bridge"}, tls=self.roots))

        with grpcio() as behind, Translating(self.folder, self.certificates, behind.address) as proxy:
            for each in routes(proxy):
                self.python(each)
        with harness.grpcio() as behind, Translating(self.folder, self.certificates, behind.address) as proxy:
            for each in routes(proxy):
                self.programs.run(each)

    def nginx(self):
        if not self.suite.there("nginx", Nginx.program()):
            return
        with server("uvicorn") as behind, Nginx(self.folder, self.certificates, behind.address) as proxy:
            can = over("1.1", (ALL | GET) - {"client address"})
            # nginx may keep the bytes of an answer until more bytes arrive.
            buffered = can - {"state"}
            web = over("1.1", ALL - {"client address"})
            self.both(
                route("nginx connect", proxy.address("buffered"), CONNECT, "", buffered),
                route("nginx connect unbuffered", proxy.address("unbuffered"), CONNECT, "", can | {"heavy"}),
                route("nginx connect tls", proxy.address("tls"), CONNECT, "1.1", buffered, tls=self.roots),
                route("nginx grpc-web unbuffered", proxy.address("unbuffered"), WEB, "", web))
            single.Proxy(self.suite, proxy, behind).run()

    def alone(self):
        single.Single(self.suite).run()


def main():
    suite = harness.Suite(sys.argv[1:])
    with harness.workspace() as folder:
        connect = Connect(suite, folder)
        absent = [name for name in ("connectrpc", "hypercorn", "uvicorn") if not importlib.util.find_spec(name)]
        parts = (connect.uvicorn, connect.hypercorn, connect.wsgi, connect.pyvoy, connect.envoy, connect.nginx, connect.alone)
        for part in parts:
            if part != connect.envoy and not all(suite.there(name, False) for name in absent):
                continue
            part()
            suite.section(part.__name__)
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
