"""What the cases of every route share: the route and its calls, what is expected of an answer, and checks of what the
server has seen."""

import base64

import probe_pb2 as pb
from calls import CONNECT, GRPC, KINDS, TEXT, WEB, Caller
from google.protobuf import wrappers_pb2
from google.rpc import error_details_pb2
from harness import check, check_equal

# The content type of each kind as a server sees it, by protocol; %s is the codec.
CONTENT_TYPES = {CONNECT: "application/connect+%s", WEB: "application/grpc-web+%s", TEXT: "application/grpc-web-text+%s",
                 GRPC: "application/grpc+%s"}
DETAILS = (error_details_pb2.ErrorInfo(reason="STALE", domain="example.com", metadata={"a": "1"}),
           error_details_pb2.BadRequest(field_violations=[{"field": "f", "description": "nö"}]),
           wrappers_pb2.BytesValue(value=bytes(range(256))))
MESSAGE = "not \"now\", \\ said it;\n100 % ☺ 😈\ttab"


def header(answer, name):
    """The values of a request header, as the server has seen them."""
    return [field.value for field in answer.seen.headers if field.name == name]


def fails(code=9, message=MESSAGE, details=()):
    found = pb.Failure(code=code, message=message)
    for detail in details:
        found.details.add().Pack(detail)
    return found


class Case:
    """The base of the classes of cases. Each method `case_NAME` is a case. Its attribute `needs` has the features that the
    route must have."""

    def __init__(self, route):
        self.route = route

    def run(self, suite):
        with self.route.channel() as channel:
            self.channel = channel
            self.caller = Caller(channel)
            for name in dir(self):
                case = getattr(self, name)
                if name.startswith("case_") and self.route.can >= getattr(case, "needs", frozenset()):
                    suite.run(f"{self.route.name} {name[5:]}", case)

    @property
    def message(self):
        """The status message that arrives when a server sends MESSAGE. Envoy's bridge to Connect does not decode gRPC's
        percent-encoding."""
        if "bridge" not in self.route.can:
            return MESSAGE
        return "".join(chr(byte) if 32 <= byte < 127 and byte != 37 else f"%{byte:02X}" for byte in MESSAGE.encode())

    @property
    def kinds(self):
        if "streams" not in self.route.can:
            return ("unary",)
        return KINDS if "up" in self.route.can else tuple(kind for kind in KINDS if kind != "bidi")

    def expected(self, kind, ask):
        """The expected answers to a call of this kind with `ask`."""
        seen = {"data": ask.data, "text": ask.text, "number": ask.number}
        if kind == "client_stream":
            seen["data"] = ask.data + ask.data
        return [pb.Answer(**seen)] * (2 if kind == "bidi" else 1)

    @staticmethod
    def plain(answers):
        """The answers without their description of the call (`seen`)."""
        return [pb.Answer(data=answer.data, text=answer.text, number=answer.number) for answer in answers]

    # ---- What came to the server ----

    def check_content_type(self, kind, answer, codec):
        # If a proxy translates, the server sees another protocol and content-type.
        if "translates" in self.route.can:
            return
        expected = {CONTENT_TYPES[self.route.protocol] % codec}
        if self.route.protocol == CONNECT and kind in ("unary", "get"):
            expected = {f"application/{codec}"}
        if self.route.protocol == GRPC and codec == "proto":
            expected.add("application/grpc")
        found, = header(answer, "content-type")
        check(found.decode() in expected, f"{kind}: content-type is {found}, not of {expected}")
        if self.route.protocol == CONNECT:
            check_equal(header(answer, "connect-protocol-version"), [b"1"], kind)

    def check_metadata(self, kind, answer, call, sent):
        for name, value in sent:
            if answer:
                self.check_header(kind, answer, name, value)
            here = call.initial_metadata() if name.startswith("x-head") else call.trailing_metadata()
            there = call.trailing_metadata() if name.startswith("x-head") else call.initial_metadata()
            check_equal(here.get_all(name), [value], f"{kind}: {name} in the answer")
            check_equal(there.get_all(name), [], f"{kind}: {name} in the wrong place of the answer")

    def check_header(self, kind, answer, name, value):
        found = header(answer, name)
        if name.endswith("-bin"):
            found = [self.from_wire(one) for one in found]
        check_equal(found, [value if isinstance(value, bytes) else value.encode()], f"{kind}: {name} at the server")

    def from_wire(self, value):
        # grpcio has decoded it.
        return value if "translates" in self.route.can else base64.b64decode(value + b"===")
