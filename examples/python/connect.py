#!/usr/bin/env python3
"""Makes unary calls over the Connect protocol: by POST, and by GET because the method has no side effects. Messages
are JSON here, so that curl can call the same method:

    connect.py [TARGET]
    curl -H 'content-type: application/json' -d '{"name": "curl"}' http://TARGET/helloworld.Greeter/SayHello
    curl 'http://TARGET/helloworld.Greeter/SayHello?connect=v1&encoding=json&message=%7B%22name%22:%22curl%22%7D'

With generated stubs, ``codec=penstock.ProtobufJSONCodec()`` sends their messages as JSON. Without a codec they
are sent as protobuf, which Connect servers accept, too.
"""

import sys

import penstock

target = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"


class Says(penstock.Interceptor):
    """Prints the protocol and the HTTP method by which a call was sent to the server."""

    def on_headers(self, hop):
        print(f"{hop.http_method} over {hop.protocol}:", end=" ")


with penstock.Channel(
    f"http://{target}", options={"protocol": "connect"}, codec=penstock.JSONCodec(), interceptors=[Says()]
) as channel:
    say_hello = channel.unary_unary("/helloworld.Greeter/SayHello")
    try:
        print(say_hello({"name": "you"}, timeout=5))
        safe = penstock.Idempotency.NO_SIDE_EFFECTS
        print(say_hello({"name": "you again"}, timeout=5, idempotency=safe))
    except penstock.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
