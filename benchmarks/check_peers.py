"""Checks the programs that the benchmarks compare. Each has to make all its measurements against both servers, in
cleartext and over TLS, print the line of JSON that the runner reads, and end with an error if a reply is wrong.

    .venv/bin/python benchmarks/check_peers.py [REGEX...]
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import subprocess
import sys

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import build_peers
import harness
from harness import check, check_equal

KEYS = ("calls", "seconds", "user", "system", "switches", "max_rss_kb", "p50_us", "p99_us", "slowest")
FIRST_KEYS = ("connect_and_call_us", "total_us")
CALLS = 200
STREAMS = ("--what pingpong", "--what up", "--what up --bytes 65536", "--what down", "--what down --bytes 65536",
           "--what down --bytes 0", "--what duplex", "--what duplex --bytes 1048576")
UNARY = ("--what unary", "--what unary --in-flight 100", "--what unary --bytes 0")
MANY = "--what unary --calls 3000"
THREADS = ("--what unary --threads 4",)
IDLE = ("--what idle",)
WHATS = {
    "grpcpp_client": (*UNARY, "--what unary --in-flight 100 --style callback", *THREADS, *STREAMS, *IDLE),
    "grpcio_client.py": (*UNARY, *THREADS, *STREAMS),
    "bare": (*UNARY, *STREAMS, "--what up --copy 1", "--what unary --in-flight 100 --touch 1024"),
    # This client closes the connection after some hundred resets, so MANY also shows that the servers do not reset
    # its streams.
    "grpc-swift-client": (*UNARY, MANY, *STREAMS),
    "grpc-swift-client --transport penstock": (*UNARY, MANY, *STREAMS),
    "penstock-swift-client": (*UNARY, MANY, *STREAMS),
}
# The cases that bare can run in cleartext only.
BARE = {"cleartext": (*THREADS, "--what unary --style blocking", "--what pingpong --style blocking"), "TLS": ()}
FIRST = ("nghttp2_first", "penstock_first")


def run(command, target):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(harness.LIBRARY)}
    return subprocess.run([*command, "--target", target], env=environment, text=True, timeout=60, check=False,
                          capture_output=True)


def told(command, target):
    done = run(command, target)
    check_equal(done.returncode, 0, f"exit status ({done.stderr[-500:]})")
    check_equal(done.stdout.count("\n"), 1, "lines on stdout")
    return json.loads(done.stdout)


def measures(command, what, target):
    figures = told([*command, "--calls", str(CALLS), *what.split()], target)
    check_equal(figures["calls"], 3000 if what == MANY else CALLS, "calls")
    check(all(key in figures for key in KEYS), figures)
    check(figures["seconds"] > 0 and 0 < figures["slowest"] <= 1, figures)
    serial = what in (UNARY[0], UNARY[2], MANY, STREAMS[0], *BARE["cleartext"][1:])
    check((0 < figures["p50_us"] <= figures["p99_us"]) == serial, figures)
    if what in IDLE:
        check(figures["bytes_per_stream"] > 0, figures)


def first_call(program, target):
    figures = told([program], target)
    check(all(figures[key] > 0 for key in FIRST_KEYS), figures)


# ---- A server whose every answer is wrong ----


def changed(message):
    return message[:-1] + bytes([message[-1] ^ 1])


def bidi(requests, _):
    yield from (changed(request) for request in requests)


def server_stream(request, context):
    # Sends one message fewer than the request asks for.
    for _ in range(int(dict(context.invocation_metadata())["x-repeat"]) - 1):
        yield request


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(lambda request, _: changed(request)),
    "Bidi": grpc.stream_stream_rpc_method_handler(bidi),
    "ClientStream": grpc.stream_unary_rpc_method_handler(lambda requests, _: str(sum(1 for _ in requests) + 1).encode()),
    "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
}


@contextlib.contextmanager
def wrong_server():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("penstock.Echo", METHODS)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def finds_wrong(command, target):
    done = run(command, target)
    check_equal(done.returncode, 1, f"exit status ({done.stdout}{done.stderr[-300:]})")
    check("wrong" in done.stderr and not done.stdout, done.stdout, done.stderr)


def main():
    suite = harness.Suite(sys.argv[1:])
    programs = build_peers.build()
    suite.skipped = sum(path is None for path in programs.values())
    commands = {client: [str(programs[program]), *more] for client in (*WHATS, *FIRST)
                for program, *more in [client.split()] if programs.get(program)}
    commands["grpcio_client.py"] = [sys.executable, str(build_peers.HERE / "grpcio_client.py")]
    with harness.workspace() as folder:
        certificates = harness.Certificates(folder)
        pair = [certificates.path("server.pem"), certificates.path("server.key")]
        servers = {("penstock-peer", "cleartext"): lambda: harness.peer(),
                   ("penstock-peer", "TLS"): lambda: harness.peer("--tls", "--cert", pair[0], "--key", pair[1])}
        if programs["grpcpp_server"]:
            servers["grpcpp_server", "cleartext"] = lambda: harness.Server([programs["grpcpp_server"]])
            servers["grpcpp_server", "TLS"] = lambda: harness.Server([programs["grpcpp_server"], "--tls", *pair])
        for (name, security), start in servers.items():
            options = ["--tls", certificates.path("ca.pem")] if security == "TLS" else []
            with start() as server:
                for client, command in commands.items():
                    for what in WHATS.get(client, ()):
                        suite.run(f"{client} {what}, {name}, {security}", measures, [*command, *options], what, server.address)
                    for what in BARE[security] if client == "bare" else ():
                        suite.run(f"{client} {what}, {name}", measures, command, what, server.address)
                    if client in FIRST and not options:
                        suite.run(f"{client}, {name}", first_call, command[0], server.address)
        if "bare" in commands:
            tls = ["--tls", certificates.path("ca.pem"), "--cert", pair[0], "--key", pair[1]]
            for security, options in (("cleartext", []), ("TLS", tls)):
                for what in (*WHATS["bare"], *BARE[security]):
                    suite.run(f"bare {what}, its own server, {security}", measures,
                              [*commands["bare"], "--server", "own", *options], what, "none")
        with wrong_server() as target:
            for client, command in commands.items():
                for what in ("unary", "up", "down", "duplex", "pingpong") if client in WHATS else ():
                    suite.run(f"{client} finds wrong replies: {what}", finds_wrong, [*command, "--what", what], target)
                if client in FIRST:
                    suite.run(f"{client} finds wrong replies", finds_wrong, command, target)
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
