"""Routes to a server, and calls of the service probe.Probe on them from Python."""

import dataclasses

import harness
import penstock
import probe_pb2 as pb
import service
from penstock import RpcError

penstock.load(str(harness.LIBRARY / "libpenstock.so.0"))

MIB = 1 << 20
LIMITS = {"max_receive_message_bytes": 64 * MIB, "max_send_message_bytes": 64 * MIB}
CONNECT, WEB, TEXT, GRPC = "connect", "grpc-web", "grpc-web-text", "grpc"
KINDS = ("unary", "server_stream", "client_stream", "bidi")
METHODS = {"unary": "Unary", "get": "Get", "server_stream": "ServerStream", "client_stream": "ClientStream", "bidi": "Bidi",
           "release": "Release", "state": "State"}
MAKERS = {"unary": "unary_unary", "get": "unary_unary", "release": "unary_unary", "state": "unary_unary",
          "server_stream": "unary_stream", "client_stream": "stream_unary", "bidi": "stream_stream"}
# The time limit of a call, and of a wait, in seconds.
LIMIT = 60


@dataclasses.dataclass
class Route:
    """The way from the client to a server, and the features that work there.

    `http`: the HTTP version that the server sees; "" if a proxy on the way changes it. `can`: the features. They are
    "streams", "up" (several requests in one bidi call), "full" (full-duplex streams), "half" (its case takes long), "get",
    "json", "gzip", "zstd", "state" (the service can hold calls and report their state), "headers first" (a failed call has
    headers apart from its trailers), "client address" (the server sees the client's own), "resets" (a connection survives a
    stream that was reset or answered early), "c" (the C program's service), "translates" (a proxy translates to gRPC),
    "bridge" (a proxy translates from Connect to gRPC), "heavy" (large messages, and many calls), "thousand" (so many open
    streams), "empty" (streams without a request).
    """

    name: str
    target: str
    protocol: str
    options: dict
    can: frozenset
    http: str = ""
    tls: object = None

    def channel(self, codec=None, **options):
        chosen = {"protocol": self.protocol, **self.options, **LIMITS, **options}
        return penstock.Channel(self.target, tls=self.tls, options=chosen, codec=codec)


class Caller:
    """The methods of probe.Probe on a channel. Messages are objects of the generated classes."""

    def __init__(self, channel):
        for name, method in METHODS.items():
            make = getattr(channel, MAKERS[name])
            setattr(self, name, make(service.SERVICE + method, pb.Ask.SerializeToString, pb.Answer.FromString))

    def all(self, kind, ask, **more):
        """Makes a call of this kind with `ask`, which is sent twice if the kind has several requests. Returns the
        answers, and the call, which has the headers, trailers and so on."""
        more.setdefault("timeout", LIMIT)
        if kind in ("unary", "get"):
            answer, call = getattr(self, kind).with_call(ask, **more)
            return [answer], call
        if kind == "client_stream":
            answer, call = self.client_stream.with_call([ask, ask], **more)
            return [answer], call
        call = self.server_stream(ask, **more) if kind == "server_stream" else self.bidi([ask, ask], **more)
        return list(call), call

    def one(self, kind, ask, **more):
        return self.all(kind, ask, **more)[0][0]


def failure(make):
    """Calls `make`, and returns the RpcError that it raises."""
    try:
        found = make()
    except RpcError as error:
        return error
    raise harness.Failure(f"no error, but {str(found)[:200]}")


def eventually(what, expected, limit=LIMIT):
    """Waits until `what()` returns `expected`."""
    harness.wait_for(lambda: what() == expected, "found", what, "expected", expected, limit=limit)


def asked(**fields):
    return pb.Ask(data=b"\0some\xff bytes", text="größer ☺", number=-(2**53) - 1, **fields)
