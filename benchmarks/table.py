"""The tables of a run: as text, and in Markdown for docs/benchmarks.md."""

import limits
from aims import LATENCIES, LIMIT, ratio

NOISE = 0.15  # a rate whose (max - min) / median is larger counts as noisy
BASES = ("h2load", "grpc++")
KEPT = ("median", "min", "max", "cpu_us", *LATENCIES, "server_busy")


def spread(found):
    return (found["max"] - found["min"]) / found["median"] if found["median"] else 0


def spreads(rows):
    """For each row whose rate was measured more than once: whether the rate is noisy."""
    return [row["noisy"] for row in rows
            if row["better"] == "more" and any(len(found["rounds"]) > 1 for found in row["clients"].values())]


def noisy(rows):
    """Whether the run is too noisy for conclusions: more than a quarter of its rates are noisy."""
    told = spreads(rows)
    return sum(told) > len(told) / 4


def shown(number):
    return f"{number:,.0f}" if abs(number) >= 100 or number == int(number) else f"{number:,.2f}"


def of(row, name, other):
    """The ratio to another client, as text."""
    value = ratio_of(row["clients"], name, other)
    return "" if value is None else f"{value:.2f}"


def ratio_of(clients, name, other):
    """The ratio of a client to another, from their rounds. Kept figures have no rounds, but have the ratio."""
    if "ratios" in clients[name]:
        return clients[name]["ratios"].get(other)
    return ratio(clients[name], clients[other]) if other in clients else None


def optional(found, key, form="{:.1f}"):
    return form.format(found[key]) if found.get(key) is not None else ""


def servers(result):
    return list(dict.fromkeys(row["server"] for row in result["rows"]))


def lines(row):
    """The cells of each client: name, median, span, CPU, p50 and p99, p50 and p99 between writes, the server's load, ratios."""
    for name, found in row["clients"].items():
        busy = optional(found, "server_busy", "{:.0%}") + ("*" if found.get("server_busy", 0) >= LIMIT else "")
        yield (name + (" ~" if spread(found) > NOISE else ""), shown(found["median"]),
               f"{shown(found['min'])} .. {shown(found['max'])}", optional(found, "cpu_us"),
               *(optional(found, key) for key in LATENCIES), busy,
               *(of(row, name, base) for base in BASES))


HEADS = ("client", "median", "min .. max", "CPU us", "p50 us", "p99 us", "writes50", "writes99", "server", "/h2load", "/grpc++")
NOTES = (
    "CPU us: of the client, per call or message. p50, p99: by the client's own clock, and from the write of one request to that",
    "of the next, by one clock for all. server: its load, of one core; * it is the limit, and the ratio says less",
    "than it could. Ratios: medians of those of each round. ~ (max - min) / median is over 15 %.",
)


def kept(result):
    """The figures of a run that its tables need, without the rounds: the contents of benchmarks/figures/bench.json."""
    rows = []
    for row in result["rows"]:
        clients = row["clients"]
        figures = {name: {key: rounded(found[key]) for key in KEPT if found.get(key) is not None} |
                         {"ratios": {base: rounded(value) for base in BASES if (value := ratio_of(clients, name, base))}}
                   for name, found in clients.items()}
        rows.append({"metric": row["metric"], "unit": row["unit"], "server": row["server"], "clients": figures})
    told = spreads(result["rows"])
    aims = [{"aim": aim["aim"], "found": rounded(aim["found"]), "met": aim["met"], "server_is_limit": aim["server_is_limit"],
             "floor": {server: rounded(aim["floor"].get(server, {})) for server, met in aim["met"].items() if not met}}
            for aim in result["aims"]]
    return {"about": result["about"], "rows": rows, "aims": aims, "noisy": result["noisy"], "rates": [sum(told), len(told)]}


def rounded(value):
    return {key: rounded(one) for key, one in value.items()} if isinstance(value, dict) else round(value, 3)


def verdict(result):
    told = spreads(result["rows"]) if "rates" not in result else []
    spread_far, rates = result.get("rates", (sum(told), len(told)))
    words = f"{spread_far} of {rates} rates spread over more than 15 %"
    return f"The machine is TOO NOISY to tell: {words}." if result["noisy"] else f"{words.capitalize()}."


def value_of(aim, server):
    if server not in aim["found"]:
        return ""
    words = "met" if aim["met"][server] else "MISSED"
    return f"{shown(aim['found'][server])} {words}{'*' if aim['server_is_limit'][server] else ''}"


def text(result):
    out = []
    for server in servers(result):
        out += ["", f"Server: {server}", f"{'':<54}{HEADS[0]:<27}{HEADS[1]:>9}  {HEADS[2]:<22}" +
                "".join(f"{head:>9}" for head in HEADS[3:])]
        for row in (row for row in result["rows"] if row["server"] == server):
            for number, cells in enumerate(lines(row)):
                title = f"{row['metric']}{', ' + row['unit'] if row['unit'] else ''}" if number == 0 else ""
                out.append(f"{title:<54}{cells[0]:<27}{cells[1]:>9}  {cells[2]:<22}" +
                           "".join(f"{cell:>9}" for cell in cells[3:]))
    out += ["", *NOTES, "", f"{'aim':<96}" + "".join(f"{server:>20}" for server in servers(result))]
    for aim in result["aims"]:
        out.append(f"{aim['aim']:<96}" + "".join(f"{value_of(aim, server):>20}" for server in servers(result)))
    out += [*limits.text(result), "", verdict(result)]
    return "\n".join(out)


# Variants of the client without a library that only this library's own work needs: build/bench.md has them.
UNLISTED = ("bare sockets", "bare sockets, blocking read", "bare frames, blocking read", "bare frames, copied",
            "bare frames, 2.4 kB a call")


def markdown(result):
    """The tables for docs/benchmarks.md."""
    about = ", ".join(f"{key} {value}" for key, value in result["about"].items())
    out = [f"The run: {about}.", ""]
    for server in servers(result):
        out += [f"Server: {server}.", "",
                "| what | client | median | client CPU, us | p50 / p99, us | server | of h2load | of grpc++ |",
                "|---|---|---|---|---|---|---|---|"]
        for row in (row for row in result["rows"] if row["server"] == server):
            title = row["metric"]
            for name, median, _, cpu, p50, p99, _, _, busy, of_h2load, of_grpcpp in lines(row):
                if name.removesuffix(" ~") in UNLISTED:
                    continue
                unit = {"calls/s": "/s", "messages/s": "/s"}.get(row["unit"], f" {row['unit']}" if row["unit"] else "")
                pair = f"{p50} / {p99}" if p50 else ""
                out.append("| " + " | ".join([title, name, median + unit, cpu, pair, busy, of_h2load, of_grpcpp]) + " |")
                title = ""
        out.append("")
    out += ["| aim | " + " | ".join(servers(result)) + " |", "|---|" + "---|" * len(servers(result))]
    for aim in result["aims"]:
        out.append(f"| {aim['aim']} | " + " | ".join(value_of(aim, server) for server in servers(result)) + " |")
    return "\n".join([*out, "", verdict(result), ""])
