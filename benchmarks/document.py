"""Writes docs/benchmarks.md, which has every table, and the tables of docs/performance.md, from the figures in
benchmarks/figures that the programs of this folder keep.

    document.py            writes both pages
    document.py --check    reports whether both are up to date; changes nothing
"""

import datetime
import json
import pathlib
import re
import sys

import table

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "benchmarks" / "figures"
PAGE = ROOT / "docs" / "benchmarks.md"
SUMMARY = ROOT / "docs" / "performance.md"
NOISE = table.NOISE
WHERE_LAYERS = ("kernel", "kernel: copies", "nghttp2", "TLS", "library", "references", "libc", "libc: copies", "program")
WHERE_COLUMNS = {"kernel": ("kernel",), "nghttp2": ("nghttp2",), "TLS": ("TLS",), "library": ("library", "references"),
                 "libc": ("libc",), "copies": ("kernel: copies", "libc: copies"), "program": ("program",)}
LAYERS = ("malloc and free", "nghttp2", "transport", "channel", "call machine", "wire", "ABI", "ready-made interceptors",
          "Swift library", "reference counts", "memory copies", "TLS", "system library", "the program")
# The work of the hops in the interceptors' benchmark, by the name of the case.
HOPS = {
    "null": "no callbacks", "start": "on_start", "start_status": "on_start and on_status",
    "all": "all callbacks, create and destroy", "pause_same": "on_start: pause, resumed there",
    "pause_other": "on_start: pause, resumed on another thread",
}
# The rows of the table in docs/performance.md: the case, and which of this library's clients the row shows.
MAIN = (
    ("unary, 1 in flight", "penstock"), ("unary, 1 in flight", "penstock, spin"), ("unary, 100 in flight", "penstock"),
    ("unary, 100 in flight", "penstock, 8 interceptors"), ("unary, 10,000 in flight", "penstock"),
    ("unary, 16 threads", "penstock"), ("ping-pong on one stream", "penstock"), ("16 B messages both ways", "penstock"),
    ("16 B messages both ways", "penstock, callbacks"), ("64 KiB messages up", "penstock"),
    ("64 KiB messages up", "penstock, no copy"), ("64 KiB messages down", "penstock"), ("1 MiB messages up", "penstock, no copy"),
    ("1 MiB messages down", "penstock"), ("TLS: unary, 1 in flight", "penstock"), ("TLS: unary, 100 in flight", "penstock"),
)
AXES = {"in-flight": "calls in flight", "bytes": "larger messages", "metadata": "metadata", "interceptors": "interceptors",
        "channels": "channels", "threads": "threads"}

HEAD = """# Benchmark tables

<!-- Written by benchmarks/document.py from benchmarks/figures: do not edit it. -->

[performance.md](performance.md) has the main figures, what limits them, and advice. The rates and the CPU time of calls
from C are those of one run, the first section's; other sections come from runs of their own, and so give ratios and counts.
"""
COMPARED = """Written by `make bench`, whose build/bench.md has the spans, too. Rates are medians of the rounds. "Client CPU" is
per call or message. p50 and p99 are by each client's own clock. "server" is the share of a core that the server used; `*`
means that the server is the limit. Ratios are medians of the ratios of each round. `~` marks a spread of more than 15 %:
(max - min) / median. `bare frames` is a client without a library."""
WHERE = """Written by `benchmarks/run where`: the cost of a call or message for a client, against `penstock-peer`: system calls,
voluntary and other switches, and the CPU time in microseconds by layer, including the kernel. perf, which counts them, makes
each call dearer. `library` is libpenstock or grpc++, `copies` is copying of messages, in the kernel too."""
PROTOCOLS = """Written by `make bench` (alone: `benchmarks/run protocols`): unary calls of 64 bytes to one `penstock-peer`, by
turns in one run. Over HTTP/1.1 each call in flight has a connection. `bare client` writes prepared requests to as many sockets
and reads the answers, without a library. From Python, this library is beside `connectrpc`, whose client is pyqwest; both have
the same messages and no compression. Ratios are medians of those of each round, with the lower and upper quartile. A call
alone and Python's threads, which share one lock (the GIL), have three times as many rounds: their rates depend on whether
the system runs those that wait for each other on one core or on both."""
PROTOCOLS_COUNTED = "Instructions of the client per call, by callgrind:"
CHAINS = """Written by `make bench` (alone: `benchmarks/run interceptors`). The cost of each callback is in
[performance.md](performance.md#the-cost-of-a-hop)."""
RATES = "100 unary calls in flight against `penstock-peer`; the interceptors have `on_start` and `on_status`."
GROWTH = """Written by `make bench-growth`: unary calls against `penstock-peer`; each section increases one quantity. A message
has 64 bytes unless stated otherwise, and each point has its own process. Figures are medians of the rounds; `~` marks a
rate that varied by more than 15 % between rounds. The memory is the peak of the whole process."""
FAR = """Written by `make bench` (alone: `benchmarks/run far`): 50 MiB in messages of 64 KiB, from `penstock-peer` through a relay
that delays the bytes, each way by half of the round trip. The windows of "penstock" grow to 32 MiB, the
default of `"max_window_bytes"`; the two rows below it have another bound, and windows that do not grow. grpcio always lets its
windows grow. Ratios are medians of those of each round."""
PYTHON = """Written by `make bench` (alone: `benchmarks/run python`): Python's blocking calls against `penstock-peer`, with
messages of google.protobuf, of 64 bytes in unary calls and 16 in streams of 5,000 messages. Rates and CPU times are of calls
or messages. Each client has its own process, whose whole CPU time counts. Ratios are medians of those of each round."""
AIO = """Written by `make bench` (alone: `benchmarks/run aio`): Python on an event loop of asyncio against `penstock-peer`, with
messages of 64 bytes. Figures are medians of the rounds; the ratios to grpc.aio are medians of those of each round."""
SWIFT = """Written by `make bench` (alone: `benchmarks/run swift`): clients in Swift against `penstock-peer`, built for release
by a package that depends on this one by its path; messages are arrays of bytes, of 64 in unary calls and the ping-pong.
`grpc-swift-2` is a client of grpc-swift-2 over its NIO transport, `grpc-swift-2 over penstock` the same program over
`PenstockClientTransport`, `penstock, Swift` the module `Penstock`, and `penstock` the C library from C. Rates are of calls or
messages, or MiB of large ones. Ratios are medians of those of each round."""
BUILD_SIZE = """Written by `benchmarks/run build-size`: the program of examples/swift/hello as a package in a fresh folder, which
depends on this one by `.package(path:)` and on nothing else, and the same program with grpc-swift-2 over NIO. The times are those
of a first build. The sizes are those of the stripped program, built for release, without the shared libraries that it needs;
"ours" are the bytes that symbols of this library have in it."""
START = """Written by `make bench` (alone: `benchmarks/run start`): Python programs against `penstock-peer`, each run in a process
of its own: Python alone, with the import, and with one unary call. CPU time and peak memory are of the whole process.
Figures are medians of the rounds; the ratios are medians of those of each round."""
COUNTED = """Written by `benchmarks/profile --append TITLE`: instructions of the client per call or message, by callgrind. They
repeat to 0.5 %, except for 64 KiB down, where the copies are 15,000 to 100,000 from run to run. A large copy counts about one
instruction a byte."""
SIZE = "Written by `scripts/size --keep`: bytes of the stripped library."
BESIDE = "Written by `benchmarks/beside.py`: the stripped shared objects of other libraries, without what they need beside them."


def figures(name):
    return json.loads((FIGURES / f"{name}.json").read_text())


def keep(name, found):
    """Writes the figures of a run over those of the last run, and writes the pages."""
    FIGURES.mkdir(exist_ok=True)
    runs = {**figures("runs"), name: datetime.date.today().isoformat()}
    for file, content in ((name, found), ("runs", runs)):
        (FIGURES / f"{file}.json").write_text(json.dumps(content, indent=1) + "\n")
    write()


def of_run(text, name):
    """The text of a section, with the date of the run that its figures come from."""
    return f"{text}\n\nThe run: {figures('runs')[name]}."


def section(title, text, name, told):
    """A section of the page, if its figures have been kept."""
    if not (FIGURES / f"{name}.json").exists():
        return []
    return [title, "", of_run(text, name), "", *told(figures(name)), ""]


def rows(heads, cells):
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *("| " + " | ".join(one) + " |" for one in cells)]


def where(found):
    """Fewer columns than are kept: copies are one, and references part of the library."""
    cells, last = [], None
    for row in found["rows"]:
        if row["client"] in table.UNLISTED:
            continue
        calls, switches, _, cpu, *layers_ = row["figures"]
        by = dict(zip(WHERE_LAYERS, layers_))
        shown = (calls, switches, cpu, *(sum(by[name] or 0 for name in names) for names in WHERE_COLUMNS.values()))
        cells.append([row["metric"] if row["metric"] != last else "", row["client"],
                      *("" if not figure else f"{figure:.2f}" for figure in shown)])
        last = row["metric"]
    return rows(("what", "client", "system calls", "switches", "CPU us", *WHERE_COLUMNS), cells)


def far(found):
    cells = [[f"{trip} ms" if at == 0 else "", name, f"{one['median']:,.1f}", f"{one['min']:,.1f} .. {one['max']:,.1f}",
              f"{one['ratio']:.2f}"]
             for trip, figures_ in found.items() for at, (name, one) in enumerate(figures_.items())]
    return rows(("round trip", "client", "MiB/s", "min .. max", "of grpcio"), cells)


def protocols(found):
    cells = []
    for metric, clients in found.items():
        for at, (name, one) in enumerate(clients.items()):
            absolute = f"{one['cpu_us']:.1f}" if metric.startswith("Python") else ""
            cells.append([metric if at == 0 else "", name, absolute,
                          *(with_quartiles(one, key) for key in ("rate", "cpu_us", "cpu_of_bare"))])
    return rows(("what", "client", "client CPU, us", "rate, of gRPC or connectrpc", "CPU, of it", "CPU, of the bare client"),
                cells)


def with_quartiles(one, key):
    if key not in one["ratios"]:
        return ""
    ratio, quartiles = one["ratios"][key], one["quartiles"][key]
    return f"{ratio:.2f}" + ("" if ratio == 1 else f" ({quartiles['lower']:.2f} .. {quartiles['upper']:.2f})")


def protocol_counts(found):
    titles = list(next(iter(found.values())))
    return rows(("", *titles), [[name, *(f"{one[title]:,.0f}" for title in titles)] for name, one in found.items()])


def protocol_aims(found):
    cells = [[words, f"{value:.2f} {'met' if met else 'MISSED'}", f"{lower:.2f} .. {upper:.2f}"]
             for words, value, lower, upper, met in found]
    return rows(("aim", "ratio", "quartiles"), cells)


def hop_costs(found):
    cells = []
    for what, costs in found.items():
        c, python = costs["c"], costs.get("python")
        several = round(c["ns_per_hop"]) != round(c["ns_per_callback"])
        title = re.sub(r"\b(on_\w+|create|destroy)\b", r"`\1`", HOPS[what])
        cells.append([title, f"{c['ns_per_hop']:,.0f}", f"{c['ns_per_callback']:,.0f}" if several else "",
                      f"{c['allocations_per_hop']:.1f}", f"{python['ns_per_hop'] / 1000:.1f}" if python else ""])
    return rows(("a hop of a unary call", "C, ns", "a callback", "allocations", "Python, us"), cells)


def hop_rates(found):
    none = next(iter(found.values()))["cpu_us"]
    cells = ([count, f"{one['of_none']:.2f}", f"{one['cpu_us'] / none:.2f}"] for count, one in found.items())
    return rows(("interceptors", "rate, of none", "client CPU, of none"), cells)


def aio(found):
    cells = []
    for case, clients in found.items():
        for name, one in clients.items():
            cells.append([case, name, f"{one['rate']:,.0f}", f"{one['rate_of_base']:.2f}", f"{one['cpu_us']:.1f}",
                          f"{one['cpu_us_of_base']:.2f}"])
    return rows(("what", "client", "a second", "of grpc.aio", "CPU, us", "of grpc.aio"), cells)


def compared(found, *others):
    """The rates and CPU times of clients, with their ratios to `others`, and the aims."""
    cells = []
    for title, clients in found["rows"].items():
        for name, one in clients.items():
            ratios = (one["of"].get(other, {}).get(key) for other in others for key in ("rate", "cpu_us"))
            cells.append([title, name, f"{one['rate']:,.0f}", f"{one['cpu_us']:.2f}",
                          *("" if each is None else f"{each['median']:.2f}" for each in ratios)])
    ratios = (f"{what} of {other}" for other in others for what in ("rate", "CPU"))
    return [*rows(("what", "client", "a second", "CPU, us", *ratios), cells), "", *aims(found)]


def python(found):
    return compared(found, "grpcio", "connectrpc")


def swift(found):
    return compared(found, "grpc-swift-2", "penstock")


def build_size(found):
    times = [[how, f"{one['seconds']:.0f}", f"{one['cpu_seconds']:.0f}"] for how, one in found["build"].items()]
    sizes = [[name, f"{one['bytes']:,}", f"{one['ours']:,}"] for name, one in found["size"].items()]
    return [*rows(("first build", "seconds", "CPU seconds"), times), "", *rows(("program with", "bytes", "ours"), sizes)]


def aims(found):
    return rows(("aim", "figure"), [[words, f"{value:.2f} {'met' if met else 'MISSED'}"] for words, value, met in found["aims"]])


def start(found):
    cells = []
    for what, packages in found["rows"].items():
        for name, one in packages.items():
            ratios = (one.get("of", {}).get(key) for key in ("cpu_ms", "peak_mb"))
            cells.append([what, name, f"{one['cpu_ms']:.1f}", f"{one['peak_mb']:.1f}",
                          *("" if each is None else f"{each:.2f}" for each in ratios)])
    table_of = rows(("what", "package", "CPU, ms", "peak memory, MB", "CPU, of grpcio", "memory, of grpcio"), cells)
    return [*table_of, "", *aims(found)]


def registry(found):
    us = {key: f"{value / 1000:.1f} us" for key, value in found.items()}
    return [f"A registration and its removal take {us['registration_and_removal_ns']}, among 1,000 others "
            f"{us['registration_and_removal_among_1000_ns']}.", f"A call that a stub answers takes {us['call_ns_alone']}; with "
            f"1,000 registered interceptors that want other methods {us['call_ns_among_1000_filtered']}."]


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def is_noisy(rate):
    return (rate["max"] - rate["min"]) / rate["median"] > NOISE


def growth_table(axis, found):
    """Rates and CPU times are ratios to the first ones: the page has those of calls in one table only."""
    first, cpu = found["points"][0]["rate"]["median"], found["points"][0]["cpu_us"]
    has_size = axis == "bytes"
    cells = []
    for point in found["points"]:
        rate = point["rate"]
        size = [number(rate["median"] * point["value"] / (1 << 20))] if has_size else []
        cells.append([f"{point['value']:,}", ("~ " if is_noisy(rate) else "") + f"{rate['median'] / first:.3g}", *size,
                      f"{point['cpu_us'] / cpu:.3g}", f"{point['rss_mb']:.1f}"])
    return rows((found["axis"], "rate, of the first row's", *(["MiB/s each way"] if has_size else []), "client CPU, of it",
                 "peak RSS, MB"), cells)


def layers(found):
    """A table of instructions, with a row for each layer and a column for each scenario."""
    cells = ([name, *(f"{here[name]:,} ({here[name] / here['all']:.0%})" for here in found.values())]
             for name in LAYERS if any(here.get(name) for here in found.values()))
    return [*rows(("layer", *found), cells), "| all | " + " | ".join(f"{here['all']:,}" for here in found.values()) + " |"]


def size(found):
    total = found["total"]
    cells = [[name, f"{code:,}", f"{data:,}", f"{code + data:,}", f"{(code + data) / total:.1%}"]
             for name, code, data in found["parts"]]
    cells += [[name, "", "", f"{count:,}", f"{count / total:.1%}"] for name, count in found["others"]]
    code, data = (sum(one[column] for one in found["parts"]) for column in (1, 2))
    return rows(("part", "code", "data", "all", "share"), [*cells, ["stripped", f"{code:,}", f"{data:,}", f"{total:,}", ""]])


def beside(found):
    cells = [[name, f"{one['bytes']:,}", ", ".join(one["files"])] for name, one in found.items()]
    return rows(("library", "bytes", "files"), cells)


def page():
    compared = figures("protocols")
    chains, growth, counted = figures("interceptors"), figures("growth")["axes"], figures("instructions")
    out = [HEAD, "## Beside other clients", "", COMPARED, "", table.markdown(figures("bench")),
           "## A server far away", "", of_run(FAR, "far"), "", *far(figures("far")), "",
           "## Protocols", "", of_run(PROTOCOLS, "protocols"), "", *protocols(compared["rows"]), "", PROTOCOLS_COUNTED, "",
           *protocol_counts(compared["instructions"]), "",
           "## Python", "", of_run(PYTHON, "python"), "", *python(figures("python")), "",
           "## Python on an event loop", "", of_run(AIO, "aio"), "", *aio(figures("aio")), "",
           *section("## Swift", SWIFT, "swift", swift),
           *section("### Build time and size", BUILD_SIZE, "build-size", build_size),
           "## The start of a Python program", "", of_run(START, "start"), "", *start(figures("start")), "",
           "## Where the time of a call goes", "", of_run(WHERE, "where"), "", *where(figures("where")), "",
           "## Interceptors", "", of_run(CHAINS, "interceptors"), "", RATES, "", *hop_rates(chains["rates"]), "",
           *registry(chains["registry"]), "", "## Growth", "", of_run(GROWTH, "growth"), ""]
    for axis, found in growth.items():
        out += [f"### More {AXES[axis]}" if axis != "bytes" else "### Larger messages", "", *growth_table(axis, found), ""]
    out += ["## Instructions per call", "", of_run(COUNTED, "instructions"), "", *layers(counted["layers"]), "",
            "## Parts of the library", "", of_run(SIZE, "size"), "", *size(figures("size")), "",
            "### Other libraries", "", of_run(BESIDE, "beside"), "", *beside(figures("beside"))]
    return "\n".join(out) + "\n"


def main_table():
    """The rates of MAIN against penstock-peer, with the ratios against both servers."""
    found = figures("bench")
    servers = table.servers(found)
    clients = {(row["server"], row["metric"]): row["clients"] for row in found["rows"]}
    units = {row["metric"]: row["unit"] for row in found["rows"]}
    cells = []
    for metric, name in MAIN:
        each = [clients.get((server, metric), {}).get(name) for server in servers]
        if each[0] is None:
            continue
        ratios = ((one or {"ratios": {}})["ratios"].get(base) for one in each for base in table.BASES)
        how = name.removeprefix("penstock").removeprefix(", ")
        cells.append([f"{metric} ({how})" if how else metric, f"{table.shown(each[0]['median'])} {units[metric]}",
                      f"{each[0]['cpu_us']:.1f}", *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)])
    heads = [f"of {base}{f', {server}' if server != servers[0] else ''}" for server in servers for base in table.BASES]
    return rows(("", "rate", "client CPU, us", *heads), cells)


def written():
    """The text that each page has to have, by its path, according to the kept figures."""
    summary = SUMMARY.read_text()
    for mark, table_rows in (("main figures", main_table()), ("a hop", hop_costs(figures("interceptors")["hops"])),
                             ("protocols", protocol_aims(figures("protocols")["aims"]))):
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, after = summary.split(begin)[0], summary.split(end)[1]
        summary = before + begin + "".join(f"{row}\n" for row in table_rows) + end + after
    return {PAGE: page(), SUMMARY: summary}


def write():
    for path, text in written().items():
        path.write_text(text)


def main():
    if "--check" not in sys.argv:
        write()
        return 0
    stale = [path.name for path, text in written().items() if not path.exists() or path.read_text() != text]
    if stale:
        print(f"{', '.join(stale)}: not what the kept figures say; run benchmarks/document.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
