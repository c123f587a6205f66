"""The measurements: the cases, each with its clients, and the measurements that are not rates (memory, first call)."""

import dataclasses
import json
import statistics

import clients as programs

# Calls one after the other come within a few % of their aims, and vary by as much from round to round. So some
# clients are measured in OFTEN times as many rounds.
OFTEN = 3
KIB64 = 1 << 16
MIB = 1 << 20
UNARY_BYTES = 64


@dataclasses.dataclass(frozen=True)
class Case:
    """One measurement. `what` is bench_client's --what; `metric` is the name in the tables."""

    metric: str
    what: str
    clients: tuple
    in_flight: int = 1
    bytes: int = UNARY_BYTES
    tls: bool = False
    threads: int = 1
    least: int = 20  # calls, however slow the client is
    pilot: int = 200  # calls of the short run that decides how many calls a measurement has
    often: tuple = ()  # the clients that are measured in OFTEN times as many rounds

    @property
    def alone(self):
        """Whether the case makes one unary call after the other, on one thread."""
        return self.what == "unary" and self.in_flight == 1 and self.threads == 1

    @property
    def unit(self):
        return "MiB/s" if self.bytes >= KIB64 else "calls/s" if self.what == "unary" else "messages/s"

    def rate(self, per_second):
        return per_second * (self.bytes / MIB if self.unit == "MiB/s" else 1)


SPIN, CALLBACKS, HOPS = "penstock, spin", "penstock, callbacks", "penstock, 8 interceptors"
LENT = "penstock, no copy"
NATIVE = ("penstock", "h2load", "grpc++")
STREAM = ("penstock", CALLBACKS, "h2load", "grpc++")
ALL = ("grpcio", "grpc-swift-2")
FRAMES, READS, COPIED, TOUCHED = (f"bare frames{style}" for style in ("", ", blocking read", ", copied", ", 2.4 kB a call"))
SOCKETS, SOCKETS_READ = "bare sockets", "bare sockets, blocking read"
OWN = (SOCKETS, SOCKETS_READ)  # clients with a server of their own: measured once, not for each server
SLOW = (*ALL, FRAMES, READS, COPIED, TOUCHED, *OWN)  # clients that a quick run leaves out

CASES = (
    Case("unary, 1 in flight", "unary", ("penstock", SPIN, "h2load", "grpc++", *ALL, FRAMES, READS, SOCKETS, SOCKETS_READ),
         often=NATIVE),
    Case("unary, 100 in flight", "unary", ("penstock", HOPS, "h2load", "grpc++", *ALL, FRAMES), in_flight=100, pilot=3000),
    Case("unary, 10,000 in flight", "unary", (*NATIVE, FRAMES, TOUCHED), in_flight=10_000, least=50_000, pilot=20_000),
    Case("unary, 16 threads", "unary", ("penstock", "grpc++", "grpcio", FRAMES), threads=16, pilot=2000),
    Case("ping-pong on one stream", "pingpong",
         ("penstock", CALLBACKS, SPIN, "grpc++", *ALL, FRAMES, READS, SOCKETS, SOCKETS_READ)),
    Case("64 KiB messages up", "up", (*STREAM, LENT, *ALL, FRAMES, COPIED, SOCKETS), bytes=KIB64),
    Case("64 KiB messages down", "down", (*STREAM, *ALL), bytes=KIB64),
    Case("1 MiB messages up", "up", (*NATIVE, LENT, FRAMES, COPIED, SOCKETS), bytes=MIB, pilot=20),
    Case("1 MiB messages down", "down", (*NATIVE, FRAMES, SOCKETS), bytes=MIB, pilot=20),
    Case("1 MiB messages both ways", "duplex", (*NATIVE, LENT, FRAMES, COPIED, SOCKETS), bytes=MIB, pilot=20),
    Case("16 B messages both ways", "duplex", (*STREAM, "grpcio", FRAMES), bytes=16, pilot=10_000),
    Case("TLS: unary, 1 in flight", "unary", ("penstock", SPIN, "h2load", "grpc++", FRAMES, SOCKETS), tls=True,
         often=NATIVE),
    Case("TLS: unary, 100 in flight", "unary", NATIVE, in_flight=100, tls=True, pilot=3000),
    Case("TLS: 64 KiB messages up", "up", (*STREAM, LENT, FRAMES, COPIED, SOCKETS), bytes=KIB64, tls=True),
    Case("TLS: 64 KiB messages down", "down", STREAM, bytes=KIB64, tls=True),
)


def rounds_of(values, **more):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "rounds": [{"rate": value} for value in values], **more}


def row(metric, unit, clients, server="penstock-peer", better="less"):
    return {"metric": metric, "unit": unit, "server": server, "better": better, "clients": clients}


def memory(bench, calls, rounds):
    """The peak memory of each client with 100 calls in flight. For Penstock also how much its private memory grows from the
    end of the warm-up to the end of the calls, in the round in which it grows most."""
    case = Case("", "unary", NATIVE, in_flight=100)
    taken = {}
    for name in (name for name in case.clients if name in bench.clients):
        taken[name] = [bench.clients[name].measure(case, bench.server("penstock-peer").target, calls, None, memory=True)
                       for _ in range(rounds)]
    figures = {name: rounds_of([one["max_rss_kb"] for one in told]) for name, told in taken.items()}
    figures["penstock"]["growth_kb"] = max(one["private_kb"][1] - one["private_kb"][0] for one in taken["penstock"])
    return [row(f"peak memory after {calls:,} unary calls", "kB", figures)]


def idle_streams(bench, streams, rounds):
    case = Case("", "idle", ("penstock", "grpc++"))
    figures = {}
    for name in (name for name in case.clients if name in bench.clients):
        told = [bench.clients[name].measure(case, bench.server("penstock-peer").target, streams, None)
                for _ in range(rounds)]
        figures[name] = rounds_of([one["bytes_per_stream"] for one in told], max_rss_kb=told[0]["max_rss_kb"])
    return [row(f"memory of one of {streams:,} idle streams", "bytes", figures)]


def idle_channel(bench, seconds):
    own = bench.clients["penstock"]
    case = Case("", "idle-channel", ())
    target = bench.server("penstock-peer").target
    told = programs.Program(own.command, "--seconds", seconds).measure(case, target, 100, None)
    return [row("memory of an idle channel with its connection", "bytes", {"penstock": rounds_of([told["bytes_per_channel"]])}),
            row(f"wake-ups of 100 idle channels in {seconds} s", "", {"penstock": rounds_of([told["wakeups"]])})]


def first_call(bench, rounds):
    """The time from the start of a program to its first reply: of penstock_first, and of nghttp2_first, which does as
    little as possible.

    Further runs (`--split`) load the libraries that libpenstock needs before it, and so show what it adds to them."""
    names = {"penstock": ["penstock_first"], "nghttp2": ["nghttp2_first"], "split": ["penstock_first", "--split", "1"]}
    if any(program not in bench.programs for program, *_ in names.values()):
        raise programs.Unavailable("there is no build/bench/penstock_first or nghttp2_first")
    target = bench.server("penstock-peer").target
    taken = {name: [] for name in names}
    for number in range(rounds):
        for name in sorted(names, reverse=number % 2 == 1):
            program, *more = names[name]
            child = programs.Child([bench.programs[program], "--target", target, *more])
            taken[name].append(json.loads(child.output.strip().split("\n")[-1]))
    def figures(key, told):
        return {name: rounds_of([one[key] for one in taken[of]]) for name, of in told.items()}

    both = {"penstock": "penstock", "nghttp2": "nghttp2"}
    return [row("first call: dlopen, beyond its dependencies", "us", figures("dlopen_us", {"penstock": "split"})),
            row("first call: connect, one unary", "us", figures("connect_and_call_us", both)),
            row("first call: load, connect, one unary", "us", figures("total_us", both))]


def without(case, names):
    return dataclasses.replace(case, clients=tuple(name for name in case.clients if name not in names))
