"""Attacks by a server with frames that do not advance any call: CPU time and memory of a call that waits meanwhile.

`attacks` in this folder starts this program. Each attack goes on as long as the client allows, during a call with a deadline
of SECONDS seconds; an attack named "at the limit" sends as many frames as are forgiven. The client is fault_client:
it ends with its call, so the process's CPU time and memory are the cost of the attack. Prints a table in Markdown.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import harness
from harness import ROOT

# For each attack its name, the steps that the server repeats, and flags: "deaf" (the server no longer reads),
# "tls", "head" (the server sends no head of an answer before the attack), "open" (the attack leaves a header
# block open).
ATTACKS = (
    ("nothing", "delay 1000", ""),
    ("nothing, TLS", "delay 1000", "tls"),
    ("PING", "ping times=500", ""),
    ("PING, not read", "ping times=500", "deaf"),
    ("PING acknowledged", "frame type=6 flags=1 stream=0 zeros=8 times=500", ""),
    ("SETTINGS", "frame type=4 stream=0 times=500", ""),
    ("PRIORITY", "frame type=2 hex=000000000f times=500", ""),
    ("ALTSVC", "frame type=10 stream=0 hex=00016162 times=500", ""),
    ("unknown frames", "frame type=187 stream=0 times=500", ""),
    ("unknown frames of 64 KiB", "frame type=187 stream=0 zeros=65536 times=10", ""),
    ("WINDOW_UPDATE", "frame type=8 stream=0 hex=00000001 times=500", ""),
    ("GOAWAY", "goaway NO_ERROR last=current times=500", ""),
    ("empty DATA", "frame type=0 times=500", ""),
    ("padding", "data pad=200 times=500", ""),
    ("informational answers", "headers\n  :status: 103", "head"),
    ("CONTINUATION", "frame type=9 times=500", "open"),
    ("key updates", "key-update 100", "tls"),
    ("key updates, not read", "key-update 100", "tls deaf"),
    ("tickets", "ticket 100", "tls"),
    ("PING at the limit", "ping\ndelay 10", ""),
    ("key updates at the limit", "key-update 1\ndelay 400", "tls"),
)


def script(steps, words):
    lines = ["handshake", "expect headers"]
    if "open" in words:
        lines += ["answer open"]
    elif "head" not in words:
        lines += ["answer"]
    if "deaf" in words:
        lines += ["deaf"]
    return "\n".join([*lines, "repeat 1000000000", steps, "again", ""])


def watch(popen):
    """The peak memory of a process in KiB, until it prints something. (The peak that wait4 gives for a child is not
    used: it begins with that of this process.)"""
    peak = 0
    while not select.select([popen.stdout], [], [], 0.002)[0]:
        found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{popen.pid}/status").read_text())
        peak = max(peak, int(found.group(1)) if found else 0)
    return peak


def attack(client, certificates, seconds, name, steps, words):
    with tempfile.NamedTemporaryFile("w", suffix=".script") as file:
        file.write(script(steps, words))
        file.flush()
        tls = certificates.client_options() if "tls" in words else False
        options = ["--tls", *certificates.server_options()] if tls else []
        with harness.peer("--script", file.name, *options) as server:
            command = [client, "--target", server.address, "--channel", json.dumps({"tls": tls}), "--deadline",
                       str(seconds * 1000), "--styles", "callback", "--calls", "bidi"]
            environment = {**os.environ, "LD_LIBRARY_PATH": str(harness.LIBRARY)}
            popen = subprocess.Popen([str(part) for part in command], env=environment, stdout=subprocess.PIPE, text=True)
            peak = watch(popen)
            told = json.loads(popen.stdout.readline())
            _, _, used = os.wait4(popen.pid, 0)
            popen.returncode = 0
    return name, used.ru_utime + used.ru_stime, peak, told["ms"] / 1000, told["code"]


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    patterns = sys.argv[2:]
    wanted = [one for one in ATTACKS if not patterns or any(re.search(pattern, one[0]) for pattern in patterns)]
    with harness.workspace() as folder, concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "4"))) as pool:
        certificates = harness.Certificates(folder)
        folders = [ROOT / "Tests" / "interop" / "client"]
        client = harness.build_c("fault_client", [ROOT / "Tests" / "faults" / "fault_client.c", folders[0] / "rpc.c",
                                                  folders[0] / "wire.c"], folders)
        found = list(pool.map(lambda one: attack(client, certificates, seconds, *one), wanted))
    print("| attack | ended after, s | status | CPU, s | of a core | peak, KiB |")
    print("|---|---|---|---|---|---|")
    for name, cpu, peak, after, code in found:
        print(f"| {name} | {after:.2f} | {code} | {cpu:.2f} | {cpu / seconds:.1%} | {peak:,} |")


main()
