"""Makes unary calls from Python over the Connect protocol, with this library or with connectrpc, whose client is
pyqwest.

    connect_client.py --client penstock|connectrpc --target HOST:PORT --http 2|1.1 --calls N [--threads N] [--bytes N]

Both clients use the same messages (google.protobuf), without compression. The output has the form of bench_client's.
"""

import argparse
import json
import resource
import threading
import time

import echo_pb2

PATH = ("penstock.Echo", "Unary")


def penstock_call(arguments):
    import penstock
    channel = penstock.Channel(f"http://{arguments.target}", options={"protocol": "connect", "http": arguments.http})
    return channel.unary_unary("/" + "/".join(PATH), echo_pb2.Opaque.SerializeToString, echo_pb2.Opaque.FromString)


def connectrpc_call(arguments):
    import pyqwest
    from connectrpc.client import ConnectClientSync
    from connectrpc.compat import google_protobuf_binary_codec
    from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
    version = pyqwest.HTTPVersion.HTTP2 if arguments.http == "2" else pyqwest.HTTPVersion.HTTP1
    client = ConnectClientSync(
        f"http://{arguments.target}", codec=google_protobuf_binary_codec(), accept_compression=(), send_compression=None,
        http_client=pyqwest.SyncClient(pyqwest.SyncHTTPTransport(http_version=version)))
    method = MethodInfo(name=PATH[1], service_name=PATH[0], input=echo_pb2.Opaque, output=echo_pb2.Opaque,
                        idempotency_level=IdempotencyLevel.UNKNOWN, stream_type=StreamType.UNARY)
    return lambda message: client.execute_unary(request=message, method=method)


def run(call, message, calls, threads):
    """Makes the calls on several threads, and compares every answer with the expected one."""
    wrong = []

    def several(count):
        for _ in range(count):
            if call(message) != message:
                wrong.append("wrong reply")

    if threads == 1:
        several(calls)
    else:
        crew = [threading.Thread(target=several, args=(calls // threads,)) for _ in range(threads)]
        for one in crew:
            one.start()
        for one in crew:
            one.join()
    assert not wrong, wrong[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", choices=("penstock", "connectrpc"), required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--http", default="2")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=64)
    arguments = parser.parse_args()
    call = {"penstock": penstock_call, "connectrpc": connectrpc_call}[arguments.client](arguments)
    message = echo_pb2.Opaque(data=bytes(number * 131 & 255 for number in range(arguments.bytes)))
    calls = arguments.calls // arguments.threads * arguments.threads
    run(call, message, calls // 10 + arguments.threads, arguments.threads)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    run(call, message, calls, arguments.threads)
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"calls": calls, "seconds": seconds, "user": after.ru_utime - before.ru_utime,
                      "system": after.ru_stime - before.ru_stime, "max_rss_kb": after.ru_maxrss}))


if __name__ == "__main__":
    main()
