"""Measures where the time of a call goes: each client's system calls, context switches, page faults, and CPU time by layer.

    benchmarks/run where [REGEX...]

Uses perf, against penstock-peer, on the rows of `make bench` whose names match REGEX, by default those that match DEFAULT.
A count is the difference between a long and a short run, per call or message. CPU time is sampled 5,000 times a second
(cpu-clock), in the kernel too. A process that sends over loopback also runs the receiver's TCP code, so its kernel time has a
part of the peer's work. Prints Markdown; without REGEX it also keeps the figures in benchmarks/figures and writes
docs/benchmarks.md.
"""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "Tests" / "interop"))

import clients
import document
import harness
import scenarios
import servers

EVENTS = ("raw_syscalls:sys_enter", "context-switches", "page-faults")
HERTZ = 5000
SECONDS = 0.7
DEFAULT = ("^unary", "^ping", "up$", "^1 MiB", "^16 B", "^TLS: unary, 1 in")
# Clients that are not measured: for example clients with a server of their own, whose counts would include the
# server.
LEFT_OUT = (*scenarios.ALL, *scenarios.OWN, scenarios.SPIN, scenarios.HOPS)
COPY = re.compile(r"_?copy_(from|to)_|rep_movs|copy_user|memcpy|memmove|csum_partial_copy")
LAYERS = document.WHERE_LAYERS
LIBRARIES = ("libpenstock", "libgrpc", "libgpr", "libabsl", "libaddress_sorting", "libupb", "libev", "libstdc++")


def layer(where, function):
    """The layer to which a sample belongs, by the object file and the name of the function."""
    if where.startswith("[k") or function.startswith("[k]"):
        return "kernel: copies" if COPY.search(function) else "kernel"
    if where.startswith("libnghttp2"):
        return "nghttp2"
    if where.startswith(("libssl", "libcrypto")):
        return "TLS"
    if where.startswith("libpenstock") and re.search(r"swift_(nonatomic_)?(retain|release)", function):
        return "references"
    if where.startswith(LIBRARIES):
        return "library"
    if where.startswith(("libc.", "[vdso]", "ld-", "libpthread", "libm.")):
        return "libc: copies" if COPY.search(function) else "libc"
    return "program"


class Where:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        programs = clients.peers(quick=True)
        self.clients, _ = clients.clients(folder, programs)
        self.servers = servers.Servers(folder, programs)
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(harness.LIBRARY), "LC_ALL": "C"}

    def command(self, case, name, calls):
        target = self.servers.get("penstock-peer", case.tls).target
        command, made = self.clients[name].command_for(case, target, calls, self.servers.authority)
        return [str(part) for part in command], made

    def run(self, *command):
        done = subprocess.run(command, env=self.environment, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise harness.Failure(f"{command[0]} {done.returncode}: {done.stderr[-300:]}")
        return done.stdout

    def counts(self, case, name, calls):
        """The counts of perf's events in a run, and the number of calls that the run made."""
        command, made = self.command(case, name, calls)
        output = self.folder / "stat"
        self.run("perf", "stat", "-x,", "-o", str(output), "-e", ",".join(EVENTS), "--", *command)
        found = {line.split(",")[2]: line.split(",")[0] for line in output.read_text().split("\n") if line.count(",") > 2}
        return [int(found[event]) for event in EVENTS], made

    def samples(self, case, name, calls):
        """The CPU seconds of one call, by layer."""
        command, made = self.command(case, name, calls)
        data = str(self.folder / "samples")
        self.run("perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-o", data, "--", *command)
        told = self.run("perf", "report", "-i", data, "--stdio", "--no-children", "-F", "sample,dso,symbol", "-t", "|")
        shares = dict.fromkeys(LAYERS, 0)
        for line in told.split("\n"):
            cells = [cell.strip() for cell in line.split("|", 2)]
            if len(cells) == 3 and cells[0].isdigit():
                shares[layer(cells[1], cells[2])] += int(cells[0])
        return {key: value / HERTZ / made for key, value in shares.items()}

    def calls(self, case, name):
        """The number of calls for a run of about SECONDS, so that the client's start is a small part of it."""
        told = self.clients[name].measure(case, self.servers.get("penstock-peer", case.tls).target, case.pilot,
                                          self.servers.authority)
        return max(int(told["calls"] / told["seconds"] * SECONDS), case.least, 2 * case.in_flight)

    def row(self, case, name):
        calls = self.calls(case, name)
        more, made = self.counts(case, name, calls)
        fewer, less = self.counts(case, name, calls // 10)
        events = [(a - b) / (made - less) for a, b in zip(more, fewer, strict=True)]
        shares = self.samples(case, name, calls)
        return [*(round(max(event, 0), 2) for event in events), round(sum(shares.values()) * 1e6, 2),
                *(round(shares[key] * 1e6, 2) if shares[key] else None for key in LAYERS)]


def main():
    patterns = sys.argv[1:] or DEFAULT
    rows = []
    print("\n".join(document.where({"rows": rows})), flush=True)
    with harness.workspace() as folder:
        where = Where(folder)
        try:
            for case in scenarios.CASES:
                if not any(re.search(pattern, case.metric) for pattern in patterns):
                    continue
                for name in (name for name in case.clients if name in where.clients and name not in LEFT_OUT):
                    try:
                        figures = where.row(case, name)
                    except clients.Unavailable:
                        continue
                    rows.append({"metric": case.metric, "client": name, "figures": figures})
                    print(document.where({"rows": rows})[-1], flush=True)
        finally:
            where.servers.end()
    if patterns is DEFAULT:
        document.keep("where", {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
