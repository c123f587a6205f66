"""The interop suite; `run` in this folder starts this program."""

import sys

import harness
import single_calls
from harness import ROOT, STYLES, Process, channel_options, grpcio, peer, run_cases

HERE = ROOT / "Tests" / "interop"
# Cases that take seconds with grpcio's server; they do not run in every style.
SLOW = {"large_messages", "large_stream", "large_compressed", "pushback_at_client", "pushback_at_server"}


class Interop:
    def __init__(self, suite, folder):
        self.suite = suite
        self.folder = folder
        self.program = harness.build_interop_client()
        harness.generate_protos()
        self.certificates = harness.Certificates(folder)
        with Process([self.program, "--list"]) as process:
            self.cases = dict(line.split() for line in process.wait()[1])
        with Process([sys.executable, HERE / "grpcio_client.py", "--list"]) as process:
            self.python_cases = process.wait()[1]

    # ---- Cases ----

    def names(self, has=(), without=()):
        """The names of the cases that need nothing of the server, or something that it `has`, without those in `without`."""
        return [name for name, needs in self.cases.items() if needs in ("-", *has) and name not in without]

    def ours(self, label, target, style, names, tls=False, **options):
        """Runs this library's cases against `target`."""
        command = [self.program, "--target", target, "--style", style, "--channel", channel_options(tls, **options)]
        run_cases(self.suite, f"{label} {style}", command, names)

    def against_grpcio(self):
        has = ("hold", "echo")
        with grpcio("--tap") as server:
            self.ours("ours-grpcio tapped", server.address, "blocking", self.names(("expect",), SLOW))
        with grpcio() as server:
            for style in STYLES:
                self.ours("ours-grpcio h2c", server.address, style,
                          self.names(has, () if style in ("blocking", "callback") else SLOW - {"pushback_at_server"}))
            self.ours("ours-grpcio gzip", server.address, "callback",
                      self.names(has, {*SLOW, "server_compressed_unary", "rpc_soak"}), compression="gzip")
            self.ours("ours-grpcio deflate", server.address, "blocking",
                      self.names(has, {*SLOW, "server_compressed_unary", "rpc_soak"}), compression="deflate")
            self.ours("ours-grpcio small-window", server.address, "blocking", self.names(has, SLOW),
                      initial_stream_window_bytes=65535, initial_connection_window_bytes=65535)
            self.ours("ours-grpcio growing-window", server.address, "callback", self.names(has, SLOW),
                      initial_stream_window_bytes=65535, initial_connection_window_bytes=65535, max_window_bytes=1 << 24)
        # streams_1000 and timeouts_1000 need 1,000 streams at once. grpcio's server refuses some calls of unary_1000
        # (REFUSED_STREAM) although the client keeps to its limit of streams; they are sent again.
        few = {"streams_1000", "timeouts_1000"}
        with grpcio("--max-concurrent-streams", "100") as server:
            self.ours("ours-grpcio 100-streams", server.address, "blocking", self.names(has, SLOW | few))
        path = f"unix:{self.folder}/grpcio.sock"
        with grpcio("--listen", path) as server:
            self.ours("ours-grpcio unix", path, "blocking", self.names(has, SLOW))
            self.ours("ours-grpcio unix", path, "host-callback", ["large_unary", "ping_pong", "streams_1000"])
        with grpcio(*self.certificates.server_options()) as server:
            tls = self.certificates.client_options()
            self.ours("ours-grpcio tls", server.address, "blocking", self.names(has), tls)
            self.ours("ours-grpcio tls", server.address, "callback", self.names(has, SLOW), tls)
            self.ours("ours-grpcio tls", server.address, "host", self.names(has, SLOW), tls)
        with grpcio(*self.certificates.server_options(mutual=True)) as server:
            tls = self.certificates.client_options(mutual=True)
            self.ours("ours-grpcio mtls", server.address, "blocking", self.names(has, SLOW), tls)
            self.ours("ours-grpcio mtls", server.address, "host-callback", self.names(has, SLOW), tls)

    def against_peer(self):
        has = ("expect", "echo")
        with peer() as server:
            for style in STYLES:
                self.ours("ours-peer h2c", server.address, style, self.names(has))
            self.ours("ours-peer gzip", server.address, "blocking",
                      self.names(("echo",), {"server_compressed_unary"}), compression="gzip")
            port = server.address.rsplit(":", 1)[1]
            for target in (f"localhost:{port}", f"dns:///localhost:{port}", f"ipv4:127.0.0.1:{port}"):
                self.ours(f"ours-peer {target.replace(port, 'N')}", target, "blocking", ["large_unary", "ping_pong"])
        with peer("--listen", "[::1]:0") as server:
            self.ours("ours-peer ipv6", f"ipv6:{server.address}", "blocking", ["large_unary", "ping_pong"])
        with peer("--max-concurrent-streams", "7", "--stream-window", "65535") as server:
            few = {"streams_1000", "timeouts_1000"}
            for style in ("blocking", "callback", "host-callback"):
                self.ours("ours-peer narrow", server.address, style, self.names(has, few),
                          initial_stream_window_bytes=65535, initial_connection_window_bytes=65535)
        with peer("--max-frame-bytes", "1000000", "--stream-window", "100000000") as server:
            self.ours("ours-peer wide", server.address, "blocking", self.names(has),
                      initial_stream_window_bytes=1 << 30, initial_connection_window_bytes=1 << 30)
        path = f"unix:{self.folder}/peer.sock"
        with peer("--listen", path):
            self.ours("ours-peer unix", path, "blocking", self.names(has))
        with peer("--tls", *self.certificates.server_options()) as server:
            for style in ("blocking", "callback", "host-callback"):
                self.ours("ours-peer tls", server.address, style, self.names(has), self.certificates.client_options())
        with peer("--tls", *self.certificates.server_options(mutual=True)) as server:
            self.ours("ours-peer mtls", server.address, "blocking", self.names(has),
                      self.certificates.client_options(mutual=True))

    def grpcio_against_peer(self):
        def run(label, target, *options):
            command = [sys.executable, HERE / "grpcio_client.py", "--target", target, *options]
            names = [name for name in self.python_cases if not (label in ("tls", "mtls") and name == "streams_1000")]
            run_cases(self.suite, f"grpcio-peer {label}", command, names)

        with peer() as server:
            run("h2c", server.address)
            run("tapped", server.address, "--tap")
        with peer("--max-concurrent-streams", "100", "--stream-window", "65535") as server:
            command = [sys.executable, HERE / "grpcio_client.py", "--target", server.address]
            run_cases(self.suite, "grpcio-peer narrow", command,
                      [name for name in self.python_cases if name != "streams_1000"])
        with peer("--listen", f"unix:{self.folder}/peer-b.sock") as server:
            run("unix", server.address)
        with peer("--tls", *self.certificates.server_options()) as server:
            run("tls", server.address, "--tls", str(self.folder))
        with peer("--tls", *self.certificates.server_options(mutual=True)) as server:
            run("mtls", server.address, "--tls", str(self.folder), "--mutual")


def main():
    if not (harness.PEER.exists() and (harness.LIBRARY / "libpenstock.so").exists()):
        print("build/lib/libpenstock.so and build/bin/penstock-peer are needed: make lib peer")
        print("0 passed, 1 failed")
        return 1
    suite = harness.Suite(sys.argv[1:])
    with harness.workspace() as folder:
        interop = Interop(suite, folder)
        single_calls.SingleCalls(suite, folder, interop.program, interop.certificates).run()
        suite.section("single calls")
        interop.against_peer()
        suite.section("ours against the peer")
        interop.grpcio_against_peer()
        suite.section("grpcio against the peer")
        interop.against_grpcio()
        suite.section("ours against grpcio")
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
