"""Measures how many calls are lost to a server that refuses streams within its limit (REFUSED_STREAM).

    refused.py [CALLS [REGEX...]]    by default 5,000 calls in each row; with REGEX only the rows whose names fit

grpcio's server, with a handler of 5 ms, still counts a stream whose trailers it has sent, and refuses the next one if
its limit is reached. Prints a line for each limit and number of callers: the calls that were lost, those that grpcio's own
client lost, and the time. A row has failed if a call was lost or done twice. The suite "proxies" makes fewer calls (chosen.py).
"""

import concurrent.futures
import pathlib
import sys
import time

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import harness
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
            calls.join()
        took = time.monotonic() - began
        lost = len(calls.failed())
        print(f"{streams} streams, {callers} callers: {lost} of {count} calls lost, {took:.0f} s;"
              f" with grpcio {lost_by_grpcio(streams, callers, count)}", flush=True)
        calls.judge([server])


def lost_by_grpcio(streams, callers, count):
    with Server("--streams", str(streams)) as server, grpc.insecure_channel(server.address) as channel, \
            concurrent.futures.ThreadPoolExecutor(callers) as pool:
        method = channel.unary_unary("/proxies.Calls/Unary")

        def lost(number):
            try:
                method(b"some bytes", timeout=20, metadata=(("x-id", f"g{number}"), ("x-delay-ms", "5")))
            except grpc.RpcError:
                return True
            return False

        return sum(pool.map(lost, range(count)))


def main():
    suite = harness.Suite(sys.argv[2:])
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with harness.workspace():
        for streams, callers in ROWS:
            suite.run(f"{streams} streams, {callers} callers", measure, streams, callers, count)
    return suite.end()


if __name__ == "__main__":
    sys.exit(main())
