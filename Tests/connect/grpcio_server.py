"""Runs the service of probe.proto on grpcio, as the server behind Envoy.

Prints {"address": ...} when it listens, and ends at the end of stdin.
"""

import asyncio
import json
import os
import sys

import grpc
import probe_pb2 as pb
import service
from google.rpc import status_pb2


class GrpcCall(service.Call):
    def __init__(self, context, path):
        self.context = context
        self.path = path
        self.headers = list(context.invocation_metadata())
        self.head, self.tail = [], []

    def add_header(self, name, value):
        self.head.append((name, value))

    def add_trailer(self, name, value):
        self.tail.append((name, value))
        self.context.set_trailing_metadata(tuple(self.tail))

    async def begin(self):
        await self.context.send_initial_metadata(tuple(self.head))

    def failure(self, code, message, details):
        if details:
            status = status_pb2.Status(code=code, message=message, details=details)
            self.add_trailer("grpc-status-details-bin", status.SerializeToString())
        self.context.set_code(next(each for each in grpc.StatusCode if each.value[0] == code))
        self.context.set_details(message)
        return Ended()

    def seen(self):
        remaining = self.context.time_remaining()
        return pb.Seen(verb="POST", http="2", path=self.path, client=self.context.peer(),
                       timeout_ms=-1 if remaining is None else remaining * 1000,
                       headers=[pb.Field(name=name, value=value.encode() if isinstance(value, str) else value)
                                for name, value in self.headers])


class Ended(Exception):
    """Ends a method whose status was already set."""


def handler(probe, name, kind, function):
    """Makes a method for grpcio. `Ended` ends a stream without a message of grpcio."""
    path = service.SERVICE + name

    async def one(ask, context):
        try:
            return await function(probe, ask, GrpcCall(context, path))
        except Ended:
            return pb.Answer()

    async def many(ask, context):
        try:
            async for answer in function(probe, ask, GrpcCall(context, path)):
                yield answer
        except Ended:
            return

    make, run = {"unary": (grpc.unary_unary_rpc_method_handler, one),
                 "server_stream": (grpc.unary_stream_rpc_method_handler, many),
                 "client_stream": (grpc.stream_unary_rpc_method_handler, one),
                 "bidi_stream": (grpc.stream_stream_rpc_method_handler, many)}[kind]
    return make(run, pb.Ask.FromString, pb.Answer.SerializeToString)


async def main():
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                                      ("grpc.so_reuseport", 0)])
    probe = service.Probe()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
        "probe.Probe", {row[0]: handler(probe, *row) for row in service.METHODS}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    os.write(1, (json.dumps({"address": f"127.0.0.1:{port}"}) + "\n").encode())
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        pass
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
