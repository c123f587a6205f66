"""Measures how many calls are lost to a server that refuses streams within its limit (REFUSED_STREAM).

    refused.py [CALLS]      by default 5,000 calls in each row

grpcio's server, with a handler of 5 ms, still counts a stream whose trailers it has sent, and refuses the next one if
its limit is reached. Prints a line for each limit and number of callers: the calls that were lost, and the time. Ends with
1 if a call was lost or done twice. The suite makes fewer calls (chosen.py).
"""

import sys
import time

import harness
from harness import Failure
from load import Load, penstock
from servers import Server

ROWS = [(streams, callers) for streams in (8, 1) for callers in (8, 16, 100)]


def measure(streams, callers, count):
    with Server("--streams", str(streams)) as server, penstock.Channel(server.address, tls=False) as channel:
        began = time.monotonic()
        with Load(channel, threads=callers, count=count, kinds=("unary",), **{"x-delay-ms": "5"}) as calls:
            # At one stream this takes a minute, which is more than `judge` waits for.
            while calls.begun < count:
                time.sleep(0.1)
            took = time.monotonic() - began
            calls.join()
        lost = len(calls.failed())
        print(f"{streams} streams, {callers} callers: {lost} of {count} calls lost, {took:.0f} s", flush=True)
        try:
            calls.judge([server])
        except Failure as failure:
            print(failure)
            return False
        return True


def main():
    if not (harness.LIBRARY / "libpenstock.so").exists():
        sys.exit("build/lib/libpenstock.so is needed: make lib")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    results = [measure(*row, count) for row in ROWS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
