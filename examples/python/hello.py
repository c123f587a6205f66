#!/usr/bin/env python3
"""The smallest program: one unary call to helloworld.Greeter.

    hello.py [TARGET] [NAME]
"""

import sys

import penstock

target = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
name = sys.argv[2] if len(sys.argv) > 2 else "you"


def encode(name: str) -> bytes:
    """HelloRequest { string name = 1; } as protobuf encodes it. With generated classes, use their
    SerializeToString."""
    data = name.encode()[:127]
    return bytes([1 << 3 | 2, len(data)]) + data


def decode(reply: bytes) -> str:
    """HelloReply { string message = 1; }. With generated classes, use their FromString."""
    return reply[2:].decode()


with penstock.Channel(target, tls=False) as channel:
    say_hello = channel.unary_unary(
        "/helloworld.Greeter/SayHello", request_serializer=encode, response_deserializer=decode
    )
    try:
        print(say_hello(name, timeout=5))
    except penstock.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
