"""Tests bench_client against penstock-peer and against a server with wrong replies, and the runner's ratios and
verdicts."""

import argparse
import concurrent.futures
import http.server
import pathlib
import sys
import tempfile
import threading
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "Tests" / "interop"), str(ROOT / "benchmarks")]

import aims  # noqa: E402
import aio  # noqa: E402
import beside_test  # noqa: E402
import clients  # noqa: E402
import counts  # noqa: E402
import grpc  # noqa: E402
import harness  # noqa: E402
import plot  # noqa: E402
import protocols  # noqa: E402
import scenarios  # noqa: E402
import servers  # noqa: E402
import start  # noqa: E402
import table  # noqa: E402
from harness import check, check_equal  # noqa: E402

KEYS = {"calls", "seconds", "user", "system", "switches", "max_rss_kb", "p50_us", "p99_us", "slowest"}
CALLS = 300


def liar():
    """A gRPC server with wrong replies: each has one wrong byte, and its count of messages is one too small."""
    def bad(message):
        return message[:-1] + bytes([message[-1] ^ 1]) if message else b"?"

    methods = {
        "Unary": grpc.unary_unary_rpc_method_handler(lambda request, context: bad(request)),
        "ServerStream": grpc.unary_stream_rpc_method_handler(
            lambda request, context: (bad(request) for _ in range(CALLS + CALLS // 10 + 1))),
        "ClientStream": grpc.stream_unary_rpc_method_handler(
            lambda requests, context: str(sum(1 for _ in requests) - 1).encode()),
        "Bidi": grpc.stream_stream_rpc_method_handler(lambda requests, context: map(bad, requests)),
    }
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("penstock.Echo", methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


def measured(client, case, server, authority):
    told = client.measure(case, server.target, CALLS, authority)
    check_equal(told["calls"], CALLS, "calls")
    check(KEYS <= set(told), f"missing: {KEYS - set(told)}")
    check(told["seconds"] > 0 and 0 < told["slowest"] <= 1, told)
    serial = case.what == "pingpong" or (case.what == "unary" and case.in_flight == case.threads == 1)
    check((told["p50_us"] > 0) == serial and told["p50_us"] <= told["p99_us"], told)
    if case.alone:
        check(0 < told["cycle_p50_us"] <= told["cycle_p99_us"], told)


def found_out(client, case, target):
    try:
        client.measure(case, target, CALLS, None)
    except harness.Failure as failure:
        check("wrong" in str(failure), failure)
    else:
        raise harness.Failure("the wrong reply was not seen")


def grown():
    """Growth is marked only over its limit."""
    lines = counts.table([("size", 1_050, 1_000, counts.SIZE), ("larger", 1_051, 1_000, counts.SIZE),
                          ("calls", 1_030, 1_000, counts.INSTRUCTIONS), ("slower", 1_031, 1_000, counts.INSTRUCTIONS),
                          ("faster", 900, 1_000, counts.INSTRUCTIONS)])
    check_equal([line.split(" | ")[0].strip("| ") for line in lines if "say why" in line], ["larger", "slower"], "marked")
    check_equal(lines[2], "| size | 1,050 | 1,000 | +5.0% |", "a row")
    check_equal(lines[-1], "| faster | 900 | 1,000 | -10.0% |", "a row that is less")


def rates(*values, **more):
    return {"median": sorted(values)[len(values) // 2], "min": min(values), "max": max(values),
            "rounds": [{"rate": value, **more} for value in values], "cpu_us": 1, **more}


def run_of(own, other, **more):
    """A result of the benchmarks with one row: penstock's rates in `own`, those of h2load in `other`."""
    row = {"metric": aims.MANY, "unit": "calls/s", "server": "penstock-peer", "better": "more",
           "clients": {"penstock": own, "h2load": other}}
    row["noisy"] = any(table.spread(found) > table.NOISE for found in row["clients"].values())
    return {"about": {key: "" for key in ("date", "cpu", "cores", "kernel")}, "rows": [row], "aims": aims.judged([row]),
            "noisy": table.noisy([row]), **more}


def verdicts():
    # The ratio is 0.8 in each round.
    steady = run_of(rates(80, 84, 88), rates(100, 105, 110))
    check_equal([(one["found"], one["met"]) for one in steady["aims"]],
                [({"penstock-peer": 0.8}, {"penstock-peer": True})], "0.8 of h2load")
    check_equal(run_of(rates(70, 70, 70), rates(100, 100, 100))["aims"][0]["met"], {"penstock-peer": False}, "0.7 of h2load")
    check(not steady["noisy"], "a spread of 10 % is not noise")
    check(run_of(rates(80, 84, 98), rates(100, 105, 110))["noisy"], "a spread of 21 % is noise")
    limited = run_of(rates(80, 80, 80), rates(100, 100, 100, server_busy=0.95))
    check_equal(limited["aims"][0]["server_is_limit"], {"penstock-peer": True}, "the server used 95 % of a core")
    check_equal(aims.judged([{"metric": aims.MANY, "server": "x", "clients": {"penstock": rates(1)}}]), [], "nothing to compare")


def outputs():
    result = run_of(rates(80, 84, 88), rates(100, 105, 110))
    for text in (table.text(result), table.markdown(result)):
        check("0.80 met" in text, text)
    check("80 .. 88" in table.text(result), table.text(result))
    check_equal(table.markdown(table.kept(result)), table.markdown(result), "the tables of the figures that are kept")
    xml.dom.minidom.parseString(plot.svg(result))


def h2load_counts(client, target):
    """h2load only counts the bytes of an answer. The number of messages that it sends is a power of ten. The liar's
    count is one less, so it has a digit less, and the answer a byte less."""
    found_out(client, scenarios.Case("", "up", (), bytes=16), target)


class WrongPages(http.server.BaseHTTPRequestHandler):
    """Answers of Connect over HTTP/1.1, each with one wrong byte."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/proto")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:-1] + bytes([body[-1] ^ 1]))

    def log_message(self, *_):
        pass


class WrongServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that has found a wrong byte closes its connections."""


def protocol_figures(bench, row, name):
    """One short measurement of a client of a row."""
    told = bench.once(name, protocols.ROWS[row][0], CALLS)
    check(told["rate"] > 0 and told["cpu_us"] > 0 and told["server_busy"] > 0, told)


def protocol_lies(bench, row, name):
    try:
        bench.once(name, protocols.ROWS[row][0], CALLS)
    except harness.Failure as failure:
        check("wrong" in str(failure), failure)
    else:
        raise harness.Failure("the wrong reply was not seen")


def by_protocol(suite):
    harness.generate_protos()
    programs = protocols.build_peers.build(["bare_http1"])
    with harness.peer() as peer, WrongServer(("127.0.0.1", 0), WrongPages) as lying:
        threading.Thread(target=lying.serve_forever, daemon=True).start()
        bench = protocols.Bench(servers.Server(peer), programs)
        for row, (_, names) in protocols.ROWS.items():
            for name in names:
                suite.run(f"measures {row}, {name}", protocol_figures, bench, row, name)
        bench.server.target = f"127.0.0.1:{lying.server_port}"
        for row, (_, names) in protocols.ROWS.items():
            for name in names:
                if name == protocols.CONNECT1 or name == protocols.BARE or row.endswith("1 thread, HTTP/1.1"):
                    suite.run(f"finds wrong replies {row}, {name}", protocol_lies, bench, row, name)
        lying.shutdown()


def on_a_loop(client, case, server, target):
    """A client on an event loop measures, and finds wrong replies."""
    told = aio.once(server.target, client, case, CALLS)
    check(told["rate"] > 0 and told["cpu_us"] > 0, told)
    if client == "connectrpc":
        return  # the server that gives wrong replies speaks gRPC alone
    try:
        aio.once(target, client, case, CALLS)
    except harness.Failure as error:
        check("wrong" in str(error), error)
    else:
        check(False, "wrong replies were not found")


def ratios_on_a_loop():
    samples = {name: [{"rate": 200.0, "cpu_us": 10.0}, {"rate": 300.0, "cpu_us": 20.0}] for name in aio.CLIENTS}
    samples[aio.BASE] = [{"rate": 100.0, "cpu_us": 40.0}, {"rate": 100.0, "cpu_us": 40.0}]
    found = aio.summary(samples)["penstock.aio"]
    check_equal(found, {"rate": 250.0, "cpu_us": 15.0, "rate_of_base": 2.5, "cpu_us_of_base": 0.38}, "ratios")


def starts(server, lying):
    """Each program of the start's measurement works, finds a wrong reply, and has its ratios and verdicts."""
    with tempfile.TemporaryDirectory() as cache:
        for (what, name), program in start.PROGRAMS.items():
            told = start.once(program, server.target, cache)
            check(told["cpu_ms"] > 0 and told["peak_mb"] > 0, told)
            if what == start.FIRST:
                try:
                    start.once(program, lying, cache)
                except harness.Failure as error:
                    check("AssertionError" in str(error), error)
                else:
                    check(False, f"{name}: the wrong reply was not found")
    samples = {key: [{"cpu_ms": 40.0, "peak_mb": 10.0}, {"cpu_ms": 80.0, "peak_mb": 30.0}] for key in start.PROGRAMS}
    samples[start.FIRST, start.OURS] = [{"cpu_ms": 60.0, "peak_mb": 5.0}, {"cpu_ms": 80.0, "peak_mb": 15.0}]
    rows = start.summary(samples)
    own = {"cpu_ms": 70.0, "peak_mb": 10.0, "of": {"cpu_ms": 1.25, "peak_mb": 0.5}}
    check_equal(rows[start.FIRST][start.OURS], own, "ratios")
    check_equal([(value, met) for _, value, met in start.judged(rows)], [(0.0, True), (1.25, False), (0.5, True)], "verdicts")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("patterns", nargs="*")
    suite = harness.Suite(parser.parse_args().patterns)
    suite.run("verdicts", verdicts)
    suite.run("sizes and instructions that want a reason", grown)
    suite.run("outputs", outputs)
    suite.run("ratios on an event loop", ratios_on_a_loop)
    with harness.workspace() as folder:
        programs = clients.clients(folder, {})[0]
        common = servers.Servers(folder, {})
        lying, target = liar()
        seen = set()
        for case in scenarios.CASES:
            for name in ("penstock",) if case.what == "unary" else ("penstock", "penstock, callbacks"):
                size = min(case.bytes, 70_000)
                small = scenarios.dataclasses.replace(case, bytes=size, in_flight=min(case.in_flight, 100))
                kind = f"{case.what} {'TLS ' if case.tls else ''}{small.in_flight} {case.threads} {size} {name}"
                if kind in seen:
                    continue
                seen.add(kind)
                server = common.get("penstock-peer", case.tls)
                suite.run(f"measures {kind}", measured, programs[name], small, server, common.authority)
                if not case.tls:
                    suite.run(f"finds wrong replies {kind}", found_out, programs[name], small, target)
        if "h2load" in programs:
            suite.run("finds wrong replies h2load", h2load_counts, programs["h2load"], target)
        else:
            suite.skipped += 1
        by_protocol(suite)
        suite.run("starts of Python programs", starts, common.get("penstock-peer", False), target)
        beside_test.run(suite, common.get("penstock-peer", False).target)
        for case in aio.CASES:
            for name in aio.clients_of(case):
                suite.run(f"measures {case} {name}", on_a_loop, name, case, common.get("penstock-peer", False), target)
        lying.stop(None)
        common.end()
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
