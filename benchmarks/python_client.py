"""Makes calls from Python, with this library, grpcio or connectrpc, whose client is pyqwest.

    python_client.py --client NAME --target HOST:PORT [--protocol grpc|connect] [--http 2|1.1] [--what unary|down|up|both]
                     [--interceptor] [--calls N] [--threads N] [--bytes N]

NAME is penstock, penstock.grpc, grpcio or connectrpc. All of them use the same messages (google.protobuf), without
compression. In a stream each message counts as a call: `down` is a server stream, `up` a client stream, from a generator;
`list` is the same from a list; `both` sends all and reads all. The output has the form of bench_client's.
"""

import argparse
import json
import resource
import threading
import time

import echo_pb2

SERVICE = "penstock.Echo"
METHODS = {"unary": "Unary", "down": "ServerStream", "up": "ClientStream", "list": "ClientStream", "both": "Bidi"}
KINDS = {"unary": "unary_unary", "down": "unary_stream", "up": "stream_unary", "list": "stream_unary", "both": "stream_stream"}
# The number of messages of a stream.
STREAM = 5000


def grpc_channel(arguments):
    """A channel with the methods of grpcio's channels."""
    if arguments.client == "grpcio":
        import grpc
        return grpc.insecure_channel(arguments.target)
    if arguments.client == "penstock.grpc":
        import penstock.grpc
        return penstock.grpc.insecure_channel(arguments.target)
    import penstock
    options = {"protocol": arguments.protocol, "http": arguments.http}
    channel = penstock.Channel(f"http://{arguments.target}", options=options)
    if arguments.interceptor:
        class Two(penstock.Interceptor):
            def on_start(self, hop):
                return None

            def on_status(self, hop):
                return None

        channel.add_interceptor(Two())
    return channel


def grpc_call(arguments):
    """A function of a request, or of requests, and metadata."""
    method = getattr(grpc_channel(arguments), KINDS[arguments.what])(
        f"/{SERVICE}/{METHODS[arguments.what]}", echo_pb2.Opaque.SerializeToString, echo_pb2.Opaque.FromString)
    if arguments.client == "grpcio" and arguments.what == "list":
        return lambda request, metadata: method(iter(request))
    return lambda request, metadata: method(request, metadata=metadata) if metadata else method(request)


def connectrpc_call(arguments):
    import pyqwest
    from connectrpc.client import ConnectClientSync
    from connectrpc.compat import google_protobuf_binary_codec
    from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
    version = pyqwest.HTTPVersion.HTTP2 if arguments.http == "2" else pyqwest.HTTPVersion.HTTP1
    client = ConnectClientSync(
        f"http://{arguments.target}", codec=google_protobuf_binary_codec(), accept_compression=(), send_compression=None,
        http_client=pyqwest.SyncClient(pyqwest.SyncHTTPTransport(http_version=version)))
    kind, execute = {
        "unary": (StreamType.UNARY, client.execute_unary), "down": (StreamType.SERVER_STREAM, client.execute_server_stream),
        "up": (StreamType.CLIENT_STREAM, client.execute_client_stream),
        "list": (StreamType.CLIENT_STREAM, client.execute_client_stream),
        "both": (StreamType.BIDI_STREAM, client.execute_bidi_stream)}[arguments.what]
    method = MethodInfo(name=METHODS[arguments.what], service_name=SERVICE, input=echo_pb2.Opaque, output=echo_pb2.Opaque,
                        idempotency_level=IdempotencyLevel.UNKNOWN, stream_type=kind)
    if arguments.what == "list":
        return lambda request, metadata: execute(request=iter(request), method=method, headers=dict(metadata))
    return lambda request, metadata: execute(request=request, method=method, headers=dict(metadata))


def unary(call, message, calls):
    return sum(call(message, ()) == message for _ in range(calls))


def streams(calls):
    """The lengths of the streams that have this many messages together."""
    whole, rest = divmod(calls, STREAM)
    return [STREAM] * whole + [rest] * (rest > 0)


def down(call, message, calls):
    return sum(each == message for count in streams(calls) for each in call(message, (("x-count", str(count)),)))


def up(call, message, calls):
    # The answer is all requests, one after the other: of a field that comes again protobuf takes the last.
    return sum(count for count in streams(calls) if call((message for _ in range(count)), ()) == message)


def up_list(call, message, calls):
    return sum(count for count in streams(calls) if call([message] * count, ()) == message)


def both(call, message, calls):
    return sum(each == message for count in streams(calls) for each in call((message for _ in range(count)), ()))


RUNS = {"unary": unary, "down": down, "up": up, "list": up_list, "both": both}


def run(arguments, call, message, calls):
    """Makes the calls on several threads, and counts the right answers."""
    right = []

    def several():
        right.append(RUNS[arguments.what](call, message, calls // arguments.threads))

    if arguments.threads == 1:
        several()
    else:
        crew = [threading.Thread(target=several) for _ in range(arguments.threads)]
        for one in crew:
            one.start()
        for one in crew:
            one.join()
    assert sum(right) == calls, f"wrong replies: {sum(right)} of {calls} are right"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", choices=("penstock", "penstock.grpc", "grpcio", "connectrpc"), required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--protocol", default="connect")
    parser.add_argument("--http", default="2")
    parser.add_argument("--what", choices=RUNS, default="unary")
    parser.add_argument("--interceptor", action="store_true")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=64)
    arguments = parser.parse_args()
    call = (connectrpc_call if arguments.client == "connectrpc" else grpc_call)(arguments)
    message = echo_pb2.Opaque(data=bytes(number * 131 & 255 for number in range(arguments.bytes)))
    calls = arguments.calls // arguments.threads * arguments.threads
    run(arguments, call, message, (calls // 10 // arguments.threads + 1) * arguments.threads)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    run(arguments, call, message, calls)
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"calls": calls, "seconds": seconds, "user": after.ru_utime - before.ru_utime,
                      "system": after.ru_stime - before.ru_stime, "max_rss_kb": after.ru_maxrss}))


if __name__ == "__main__":
    main()
