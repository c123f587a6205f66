"""The aims for this library's speed, and the results of a run for each."""

import dataclasses
import operator
import statistics

LIMIT = 0.9  # a server that uses so much of a core counts as the limit of the rate
WORDS = {"rate": "rate", "cpu_us": "client CPU", "p50_us": "p50", "p99_us": "p99", "cycle_p50_us": "p50 between writes",
         "cycle_p99_us": "p99 between writes"}
LATENCIES = ("p50_us", "p99_us", "cycle_p50_us", "cycle_p99_us")  # two by the client's own clock, two by cycle.c's
SIGNS = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


@dataclasses.dataclass(frozen=True)
class Aim:
    """An aim: the `figure` of `client` in the row `metric`, or, with `other`, its ratio to that client's (the median of
    the rounds' ratios), compared by `sign` with `limit`."""

    metric: str
    figure: str
    other: str
    sign: str
    limit: float
    client: str = "penstock"
    words: str = ""
    other_metric: str = ""

    def __str__(self):
        words = self.words or WORDS[self.figure]
        style = self.client.removeprefix("penstock").removeprefix(", ")
        other = f" of {self.other}'s" if self.other and self.other != self.client else ""
        if self.other_metric:
            other = f" of that of {self.other_metric}"
        return f"{self.metric}{f' ({style})' if style else ''}: {words} {self.sign} {self.limit:,g}{other}"


SPIN, CALLBACKS, LENT = "penstock, spin", "penstock, callbacks", "penstock, no copy"
SERIAL, MANY, UP, DOWN = "unary, 1 in flight", "unary, 100 in flight", "64 KiB messages up", "64 KiB messages down"
SMALL = "16 B messages both ways"
CALLS = ("1,000,000", "200,000")  # in a whole run, and in a quick run
FIRST = "first call: load, connect, one unary"

AIMS = (
    Aim(MANY, "rate", "h2load", ">=", 0.75),
    Aim(MANY, "rate", "grpc++", ">=", 3),
    Aim(MANY, "rate", "grpc-swift-2", ">=", 10),
    Aim(MANY, "cpu_us", "h2load", "<=", 1.5),
    Aim(MANY, "cpu_us", "grpc++", "<=", 0.25),
    Aim(SERIAL, "p50_us", "h2load", "<=", 1.1),
    Aim(SERIAL, "p99_us", "h2load", "<=", 1.1),
    Aim(SERIAL, "cycle_p50_us", "h2load", "<=", 1.1),
    Aim(SERIAL, "cycle_p99_us", "h2load", "<=", 1.1),
    Aim(SERIAL, "p50_us", "h2load", "<", 1, SPIN),
    Aim(SERIAL, "p99_us", "h2load", "<", 1, SPIN),
    Aim(SERIAL, "cpu_us", "h2load", "<=", 1),
    Aim("ping-pong on one stream", "rate", "grpc++", ">=", 1.7),
    Aim(UP, "rate", "grpc++", ">=", 1.3, LENT),
    Aim(DOWN, "rate", "h2load", ">=", 0.9),
    Aim(DOWN, "rate", "h2load", ">=", 0.9, CALLBACKS),
    Aim("1 MiB messages up", "rate", "grpc++", ">=", 1.3, LENT),
    Aim("1 MiB messages down", "rate", "grpc++", ">=", 1.3),
    Aim("1 MiB messages both ways", "rate", "grpc++", ">=", 1.3, LENT),
    Aim(SMALL, "rate", "grpc++", ">=", 3),
    Aim(SMALL, "rate", "grpc++", ">=", 3, CALLBACKS),
    Aim(f"TLS: {MANY}", "rate", "h2load", ">=", 0.8),
    Aim(f"TLS: {MANY}", "rate", "grpc++", ">=", 1.5),
    Aim(f"TLS: {SERIAL}", "rate", "h2load", ">=", 0.8),
    Aim(f"TLS: {SERIAL}", "rate", "grpc++", ">=", 1.5),
    Aim(f"TLS: {UP}", "rate", "grpc++", ">=", 1.5, LENT),
    Aim(f"TLS: {DOWN}", "rate", "h2load", ">=", 0.8),
    Aim(f"TLS: {DOWN}", "rate", "grpc++", ">=", 1.5),
    Aim("unary, 16 threads", "rate", "grpc++", ">=", 2),
    Aim("unary, 16 threads", "slowest", "", ">=", 0.5, words="the slowest thread, of the mean,"),
    Aim("unary, 10,000 in flight", "rate", "penstock", ">=", 0.6, other_metric=MANY),
    Aim("memory of one of 10,000 idle streams", "rate", "", "<", 2048, words="bytes"),
    *(Aim(f"peak memory after {calls} unary calls", "rate", "", "<", 8_000_000 / 1024, words="kB") for calls in CALLS),
    *(Aim(f"peak memory after {calls} unary calls", "growth_kb", "", "<=", 64,
          words="growth from the 10 % mark to the end, kB,") for calls in CALLS),
    Aim(FIRST, "rate", "nghttp2", "<=", 1.2, words="time"),
    Aim("first call: dlopen, beyond its dependencies", "rate", "", "<=", 300, words="us"),
    Aim("memory of an idle channel with its connection", "rate", "", "<", 65536, words="bytes"),
    Aim("wake-ups of 100 idle channels in 10 s", "rate", "", "<=", 0, words="wake-ups"),
    Aim(MANY, "rate", "penstock", ">=", 0.95, "penstock, 8 interceptors"),
)


def ratio(one, other, figure="rate"):
    """The ratio of a figure of two clients: the median of the ratios of each round. None if a round of either has no
    such figure."""
    pairs = [(a.get(figure), b.get(figure)) for a, b in zip(one["rounds"], other["rounds"])]
    if not pairs or any(a is None or not b for a, b in pairs):
        return None
    return statistics.median(a / b for a, b in pairs)


def found(aim, rows, server):
    """The measured value of `aim` against `server`; None if it was not measured."""
    here = {row["metric"]: row["clients"] for row in rows if row["server"] == server}
    clients = here.get(aim.metric, {})
    if aim.client not in clients:
        return None
    figures = clients[aim.client]
    if not aim.other:
        return figures["median"] if aim.figure == "rate" else figures.get(aim.figure)
    others = here.get(aim.other_metric or aim.metric, {})
    return ratio(figures, others[aim.other], aim.figure) if aim.other in others else None


def floors(aim, rows, server):
    """For each client of bare.c, which uses no library: the value of `aim` that it reaches against `server`. For an aim
    about 10,000 calls in flight the value is relative to the client's own rate with 100."""
    clients = next((row["clients"] for row in rows if row["server"] == server and row["metric"] == aim.metric), {})
    if not aim.other or (aim.other.startswith("penstock") and not aim.other_metric):
        return {}
    names = [name for name in clients if name.startswith("bare")]
    if aim.other_metric:
        names += [name for name in ("h2load", "grpc++") if name in clients]
    own = {name: "bare frames" if name.startswith("bare") else name for name in names}
    values = {name: found(dataclasses.replace(aim, client=name, other=own[name] if aim.other_metric else aim.other), rows, server)
              for name in names}
    return {name: value for name, value in values.items() if value is not None}


def limited(aim, rows, server):
    """Whether the server was the limit of a rate, so that the ratio says little about the clients."""
    return aim.figure == "rate" and any(
        found.get("server_busy", 0) >= LIMIT for row in rows if row["server"] == server and row["metric"] == aim.metric
        for name, found in row["clients"].items() if name in (aim.client, aim.other))


def judged(rows):
    """Each measured aim, with its value against each server, and whether that server's value meets the aim."""
    servers = list(dict.fromkeys(row["server"] for row in rows))
    told = []
    for aim in AIMS:
        values = {server: found(aim, rows, server) for server in servers}
        values = {server: value for server, value in values.items() if value is not None}
        if values:
            told.append({"aim": str(aim), "metric": aim.metric, "found": values,
                         "floor": {server: floors(aim, rows, server) for server in values},
                         "met": {server: SIGNS[aim.sign](value, aim.limit) for server, value in values.items()},
                         "server_is_limit": {server: limited(aim, rows, server) for server in values}})
    return told
