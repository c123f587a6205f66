"""The cases that run on every route. They call probe.Probe from Python; its answers describe the call as the server has
seen it."""

import base64
import itertools
import json
import os
import threading
import time
import urllib.parse

import harness
import penstock
import probe_pb2 as pb
from calls import CONNECT, GRPC, KINDS, LIMIT, MAKERS, MIB, TEXT, WEB, Caller, asked, eventually, failure
from google.protobuf import json_format, wrappers_pb2
from google.rpc import error_details_pb2
from harness import check, check_equal
from penstock import Idempotency, RpcError, StatusCode

# What a server sees of each kind's content type, by protocol; %s is the codec.
CONTENT_TYPES = {CONNECT: "application/connect+%s", WEB: "application/grpc-web+%s", TEXT: "application/grpc-web-text+%s",
                 GRPC: "application/grpc+%s"}
DETAILS = (error_details_pb2.ErrorInfo(reason="STALE", domain="example.com", metadata={"a": "1"}),
           error_details_pb2.BadRequest(field_violations=[{"field": "f", "description": "nö"}]),
           wrappers_pb2.BytesValue(value=bytes(range(256))))
MESSAGE = "not \"now\", \\ said it;\n100 % ☺ 😈\ttab"
NUMBERS = itertools.count()


def header(answer, name):
    """The values of a request header, as the server has seen them."""
    return [field.value for field in answer.seen.headers if field.name == name]


def fails(code=9, message=MESSAGE, details=()):
    found = pb.Failure(code=code, message=message)
    for detail in details:
        found.details.add().Pack(detail)
    return found


class Cases:
    """Each method `case_NAME` is a case. Its attribute `needs` has the features that the route must have."""

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

    # ---- What comes to the server ----

    def case_kinds(self):
        for kind in self.kinds:
            ask = asked()
            answers, call = self.caller.all(kind, ask)
            check_equal(self.plain(answers), self.expected(kind, ask), kind)
            check_equal(call.code(), StatusCode.OK)
            check_equal(answers[-1].seen.verb, "POST", kind)
            check(not self.route.http or answers[-1].seen.http == self.route.http, kind, "came as HTTP", answers[-1].seen.http)
            check_equal(answers[-1].seen.messages, 2 if kind in ("client_stream", "bidi") else 1, f"{kind}: messages")
            self.check_content_type(kind, answers[-1], "proto")

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

    def case_empty_messages(self):
        for kind in self.kinds:
            answers, _ = self.caller.all(kind, pb.Ask())
            check_equal(self.plain(answers), self.expected(kind, pb.Ask()), kind)

    def case_metadata(self):
        """Metadata in both directions: texts, bytes, and several values of one name, in headers and in trailers."""
        sent = [("x-head-text", "a, b; c=\"d\""), ("x-head-bytes-bin", b"\0\xff,"), ("x-tail-text", "end of it"),
                ("x-tail-bytes-bin", bytes(range(256))), ("x-tail-empty", "")]
        for kind in self.kinds:
            answers, call = self.caller.all(kind, asked(), metadata=sent)
            self.check_metadata(kind, answers[0], call, sent)

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

    def case_metadata_twice(self):
        sent = [("x-tail-one", "1"), ("x-tail-one", "2"), ("x-tail-two-bin", b"\1"), ("x-tail-two-bin", b"\2")]
        for kind in self.kinds:
            _, call = self.caller.all(kind, asked(), metadata=sent)
            for name in ("x-tail-one", "x-tail-two-bin"):
                found = call.trailing_metadata().get_all(name)
                expected = [value for key, value in sent if key == name]
                if not name.endswith("-bin"):
                    # A server may join the values with commas (RFC 9110, section 5.3).
                    found = [part.strip() for value in found for part in value.split(",")]
                check_equal(found, expected, f"{kind}: {name}")

    def case_large_metadata(self):
        value = "x" * 6000
        for kind in self.kinds:
            answers, call = self.caller.all(kind, asked(), metadata=[("x-head-large", value)])
            check_equal(call.initial_metadata().get("x-head-large"), value, kind)
            check_equal(header(answers[0], "x-head-large"), [value.encode()], kind)

    # ---- GET ----

    def case_get(self):
        for ask in (asked(), pb.Ask(), pb.Ask(text="a")):
            answers, call = self.caller.all("get", ask, idempotency=Idempotency.NO_SIDE_EFFECTS,
                                            metadata=[("x-tail-a", "b"), ("x-head-c-bin", b"\xfe")])
            answer = answers[0]
            check_equal(self.plain(answers), self.expected("get", ask))
            check_equal(call.trailing_metadata().get("x-tail-a"), "b")
            check_equal(call.initial_metadata().get("x-head-c-bin"), b"\xfe")
            if "translates" in self.route.can:
                continue
            check_equal(answer.seen.verb, "GET")
            query = dict(urllib.parse.parse_qsl(answer.seen.query, keep_blank_values=True))
            check_equal((query.get("encoding"), query.get("connect")), ("proto", "v1"), answer.seen.query)
            check_equal(header(answer, "content-type"), [], "content-type of GET")

    case_get.needs = frozenset({"get"})

    def case_get_too_long(self):
        """A GET whose URL would be over the limit is sent as a POST."""
        ask = pb.Ask(data=os.urandom(9000))
        answer = self.caller.one("get", ask, idempotency=Idempotency.NO_SIDE_EFFECTS)
        check_equal((answer.seen.verb, answer.data), ("POST", ask.data))
        with self.route.channel(max_get_url_bytes=300) as channel:
            for size, verb in ((30, "GET"), (3000, "POST")):
                verb = "POST" if "translates" in self.route.can else verb
                answer = Caller(channel).one("get", pb.Ask(data=bytes(size)), idempotency=Idempotency.NO_SIDE_EFFECTS)
                check_equal((answer.seen.verb, len(answer.data)), (verb, size))

    case_get_too_long.needs = frozenset({"get"})

    def case_get_fails(self):
        error = failure(lambda: self.caller.one("get", pb.Ask(failure=fails(5, details=DETAILS[:1])),
                                                idempotency=Idempotency.NO_SIDE_EFFECTS))
        check_equal((error.code(), error.details()), (StatusCode.NOT_FOUND, self.message))
        check_equal(len(error.status_details), 1)

    case_get_fails.needs = frozenset({"get"})

    # ---- Streams ----

    def case_long_streams(self):
        """Streams with many messages of many sizes, in each direction."""
        sizes = [index * 131 % 7000 for index in range(300)]
        asks = [pb.Ask(data=bytes([index % 256]) * size) for index, size in enumerate(sizes)]
        answer = self.caller.client_stream(iter(asks), timeout=LIMIT)
        check_equal((len(answer.data), answer.seen.messages), (sum(sizes), 300))
        check(answer.data == b"".join(ask.data for ask in asks), "other bytes than were sent")
        answers = list(self.caller.server_stream(pb.Ask(answers=300, data=b"x" * 3000), timeout=LIMIT))
        check_equal([answer.number for answer in answers], list(range(300)))
        check(all(answer.data == b"x" * 3000 for answer in answers), "other bytes than were sent")
        check_equal(list(self.caller.server_stream(pb.Ask(answers=-1), timeout=LIMIT)), [], "an empty stream")

    case_long_streams.needs = frozenset({"streams"})

    def case_no_requests(self):
        check_equal(list(self.caller.bidi([], timeout=LIMIT)), [], "a stream without requests")
        check_equal(self.caller.client_stream([], timeout=LIMIT).data, b"", "no requests")

    case_no_requests.needs = frozenset({"streams", "empty"})

    def case_full_duplex(self):
        """On one stream, each request is sent after the answer to the request before it."""
        replies = threading.Semaphore(0)

        def asks():
            for number in range(20):
                yield pb.Ask(number=number)
                check(replies.acquire(timeout=LIMIT), "no answer to", number)

        numbers = []
        for answer in self.caller.bidi(asks(), timeout=LIMIT):
            numbers.append(answer.number)
            replies.release()
        check_equal(numbers, list(range(20)))

    case_full_duplex.needs = frozenset({"full"})

    def case_half_duplex(self):
        """Over HTTP/1.1, a receive ends the call if the half-close does not follow within 5 seconds. The receive does
        not hang."""
        begun = time.monotonic()
        gate = threading.Event()

        def asks():
            yield pb.Ask()
            gate.wait(3 * LIMIT)

        try:
            error = failure(lambda: list(self.caller.bidi(asks(), timeout=3 * LIMIT)))
            check_equal(error.code(), StatusCode.UNIMPLEMENTED, error.details())
            check(time.monotonic() - begun < LIMIT, "it took", time.monotonic() - begun, "s")
        finally:
            gate.set()

    case_half_duplex.needs = frozenset({"half"})

    # ---- Errors ----

    def case_codes(self):
        for kind in self.kinds:
            for code in range(1, 17):
                error = failure(lambda kind=kind, code=code: self.caller.all(kind, pb.Ask(failure=fails(code, f"code {code}"))))
                check_equal((error.code().number, error.details()), (code, f"code {code}"), kind)

    def case_details(self):
        """A failed call has its message, details with their content, headers and trailers."""
        sent = [("x-head-text", "a"), ("x-head-bytes-bin", b"\0\xff"), ("x-tail-text", "z"), ("x-tail-bytes-bin", b"\xff\0")]
        for kind in self.kinds:
            ask = pb.Ask(answers=-1, failure=fails(9, MESSAGE, DETAILS))
            error = failure(lambda kind=kind, ask=ask: self.caller.all(kind, ask, metadata=sent))
            check_equal((error.code(), error.details()), (StatusCode.FAILED_PRECONDITION, self.message), kind)
            names = [detail.type_name for detail in error.status_details]
            check_equal(names, [each.DESCRIPTOR.full_name for each in DETAILS], kind)
            for detail, expected in zip(error.status_details, DETAILS, strict=True):
                check_equal(detail.unpack(type(expected)), expected, kind)
            if self.route.protocol == CONNECT and kind == "unary":
                # The answer is a page of JSON. All fields of its head become trailers.
                for name, value in sent:
                    check_equal(error.trailing_metadata().get_all(name), [value], name)
            elif "headers first" in self.route.can:
                self.check_metadata(kind, None, error, sent)
            view = json.loads(error.status_json)
            check_equal((view["code"], view["message"], len(view["details"])), (9, self.message, 3), kind)

    def case_error_after_messages(self):
        for kind in ("server_stream", "bidi"):
            call = (self.caller.server_stream(asked(answers=3, failure=fails()), metadata=[("x-tail-a", "b")], timeout=LIMIT)
                    if kind == "server_stream" else
                    self.caller.bidi([asked(answers=3, failure=fails())], metadata=[("x-tail-a", "b")], timeout=LIMIT))
            answers = []
            try:
                for answer in call:
                    answers.append(answer)
                raise harness.Failure(f"{kind}: no error")
            except RpcError as error:
                check_equal((error.code(), error.details()), (StatusCode.FAILED_PRECONDITION, self.message), kind)
                check_equal(error.trailing_metadata().get("x-tail-a"), "b", kind)
            check_equal(len(answers), 3, kind)

    case_error_after_messages.needs = frozenset({"streams"})

    def case_unimplemented(self):
        for kind in self.kinds:
            method = getattr(self.channel, MAKERS[kind])("/probe.Probe/Absent")
            make = {"unary": lambda method=method: method(b"", timeout=LIMIT),
                    "server_stream": lambda method=method: list(method(b"", timeout=LIMIT)),
                    "client_stream": lambda method=method: method([b""], timeout=LIMIT),
                    "bidi": lambda method=method: list(method([b""], timeout=LIMIT))}[kind]
            check_equal(failure(make).code(), StatusCode.UNIMPLEMENTED, kind)

    case_unimplemented.needs = frozenset({"resets"})

    # ---- Compression ----

    def case_gzip(self):
        ask = pb.Ask(data=b"compressible" * 5000)
        for kind in self.kinds:
            answers, call = self.caller.all(kind, ask, compression="gzip")
            check_equal(self.plain(answers), self.expected(kind, ask), kind)
            sent, received = call.stats["sent"], call.stats["received"]
            check(sent["bytes"] > 60000 and sent["compressed_bytes"] < 6000 and sent["wire_bytes"] < 6000, f"{kind} sent {sent}")
            check(received["bytes"] > 60000, f"{kind} received {received}")
            # connectrpc uses the first encoding that the client accepts.
            if self.route.protocol == CONNECT:
                check(received["wire_bytes"] < 6000, f"{kind} received {received}")
            names = ("content-encoding",) if self.route.protocol == CONNECT and kind == "unary" else (
                "connect-content-encoding",) if self.route.protocol == CONNECT else ("grpc-encoding",)
            if "translates" not in self.route.can:
                check_equal([value for name in names for value in header(answers[0], name)], [b"gzip"], kind)

    case_gzip.needs = frozenset({"gzip"})

    def case_gzip_from_a_minimum_size(self):
        ask = pb.Ask(data=b"short")
        for kind in self.kinds:
            sizes = {}
            for least in (None, 0, 1000):
                answers, call = self.caller.all(kind, ask, compression="gzip", compression_min_bytes=least)
                check_equal(self.plain(answers), self.expected(kind, ask), kind)
                sent = call.stats["sent"]
                sizes[least] = sent["compressed_bytes"] - sent["bytes"]
            check(sizes[0] > 0 and sizes[None] == 0 and sizes[1000] == 0, f"{kind} {sizes}")

    case_gzip_from_a_minimum_size.needs = frozenset({"gzip"})

    # ---- JSON ----

    def case_json(self):
        with self.route.channel(penstock.ProtobufJSONCodec()) as channel:
            caller = Caller(channel)
            for kind in self.kinds:
                ask = asked()
                answers, _ = caller.all(kind, ask)
                check_equal(self.plain(answers), self.expected(kind, ask), kind)
                self.check_content_type(kind, answers[-1], "json")
            error = failure(lambda: caller.one("unary", pb.Ask(failure=fails(9))))
            check_equal((error.code(), error.details()), (StatusCode.FAILED_PRECONDITION, MESSAGE))

    case_json.needs = frozenset({"json"})

    def case_json_get(self):
        with self.route.channel(penstock.ProtobufJSONCodec()) as channel:
            answer = Caller(channel).one("get", asked(), idempotency=Idempotency.NO_SIDE_EFFECTS)
        check_equal((answer.seen.verb, answer.text), ("GET", asked().text))
        query = dict(urllib.parse.parse_qsl(answer.seen.query))
        check_equal((query["encoding"], query.get("base64")), ("json", None))
        check_equal(json_format.Parse(query["message"], pb.Ask()), asked())

    case_json_get.needs = frozenset({"json", "get"})

    # ---- Deadlines and cancelling ----

    def case_deadline_arrives(self):
        for kind in self.kinds:
            answer = self.caller.all(kind, asked(), timeout=30)[0][0]
            check(25_000 < answer.seen.timeout_ms <= 30_000, f"{kind}: {answer.seen.timeout_ms} ms are left of 30 s")
            answer = self.caller.all(kind, asked(), timeout=None)[0][0]
            check(answer.seen.timeout_ms < 0, f"{kind}: {answer.seen.timeout_ms} ms are left without a deadline")

    def state(self, key):
        return self.caller.state(pb.Ask(text=key), timeout=LIMIT).text

    def case_deadline(self):
        """The client's deadline ends the call, and the server notices that."""
        for kind in self.kinds:
            # On a busy machine the first deadlines may pass before the call has reached the server.
            for timeout in (0.15, 0.6, 2.4):
                key = f"deadline-{next(NUMBERS)}"
                begun = time.monotonic()
                error = failure(lambda kind=kind, key=key, timeout=timeout: self.caller.all(
                    kind, pb.Ask(hold="never"), timeout=timeout, metadata=[("x-id", key)]))
                took = time.monotonic() - begun
                check_equal(error.code(), StatusCode.DEADLINE_EXCEEDED, f"{kind}: {error.details()}")
                check(timeout - 0.01 <= took < timeout + 5, f"{kind} took {took:.2f} s of {timeout}")
                if self.state(key):
                    break
            eventually(lambda key=key: self.state(key), "cancelled")

    case_deadline.needs = frozenset({"state", "resets"})

    def case_cancel(self):
        """The server notices that a call is cancelled, before and after its first answer. connectrpc notices this only
        when it has received the whole request."""
        for field in ("hold", "hold_after"):
            for kind in ("server_stream", "bidi") if "translates" in self.route.can else ("server_stream",):
                key = f"cancel-{next(NUMBERS)}"
                ask = pb.Ask(**{field: "never"})
                # The deadline is long enough that the server does not end the call because of it.
                more = {"metadata": [("x-id", key)], "timeout": 3 * LIMIT}
                call = self.caller.server_stream(ask, **more) if kind == "server_stream" else self.caller.bidi([ask], **more)
                if field == "hold_after":
                    next(call)
                eventually(lambda key=key: self.state(key), "running")
                call.cancel()
                check_equal(call.code(), StatusCode.CANCELLED, kind)
                eventually(lambda key=key: self.state(key), "cancelled")
        check_equal(self.caller.one("unary", asked()).text, asked().text, "the call after them")

    case_cancel.needs = frozenset({"state", "streams", "resets"})

    def case_release(self):
        """A call waits at the server until another call on the same channel releases it. Both calls succeed."""
        key = f"release-{next(NUMBERS)}"
        call = self.caller.server_stream(pb.Ask(hold=key, answers=2), metadata=[("x-id", key)], timeout=LIMIT)
        eventually(lambda: self.state(key), "running")
        self.caller.release(pb.Ask(text=key), timeout=LIMIT)
        check_equal(len(list(call)), 2)
        eventually(lambda: self.state(key), "done")

    case_release.needs = frozenset({"state", "streams"})

    # ---- Sizes and numbers ----

    def case_large(self):
        data = os.urandom(4 * MIB) * 2
        answer = self.caller.one("unary", pb.Ask(data=data))
        check(answer.data == data, "other bytes than were sent")
        if "streams" in self.route.can:
            answer = self.caller.one("client_stream", pb.Ask(data=data[:4 * MIB]))
            check(answer.data == data[:4 * MIB] * 2, "other bytes than were streamed")
            answers = list(self.caller.server_stream(pb.Ask(data=data[:4 * MIB], answers=2), timeout=LIMIT))
            check(b"".join(answer.data for answer in answers) == data, "other bytes than were sent in a stream")

    case_large.needs = frozenset({"heavy"})

    def case_limit_of_receiving(self):
        """A message over the limit ends its call, and the next call succeeds."""
        with self.route.channel(max_receive_message_bytes=10_000) as channel:
            caller = Caller(channel)
            for kind in self.kinds:
                error = failure(lambda kind=kind, caller=caller: caller.all(kind, pb.Ask(size=100_000)))
                check_equal(error.code(), StatusCode.RESOURCE_EXHAUSTED, f"{kind}: {error.details()}")
            check_equal(caller.one("unary", asked()).text, asked().text, "the call after them")

    case_limit_of_receiving.needs = frozenset({"resets"})

    def case_thousand_at_once(self):
        """A thousand calls begin before the test waits for the first of them."""
        calls = [self.caller.server_stream(pb.Ask(number=number, data=b"x" * (number % 300)), timeout=60)
                 for number in range(1000)]
        for number, call in enumerate(calls):
            answers = list(call)
            check_equal([(answer.number, len(answer.data)) for answer in answers], [(number, number % 300)])

    case_thousand_at_once.needs = frozenset({"streams", "heavy"})

    def case_threads(self):
        """Many threads make calls of all kinds at the same time."""
        wrong = []

        def run(thread):
            try:
                for turn in range(15):
                    kind = self.kinds[(thread + turn) % len(self.kinds)]
                    ask = asked()
                    answers, _ = self.caller.all(kind, ask)
                    if self.plain(answers) != self.expected(kind, ask):
                        wrong.append(f"{kind}: {str(answers)[:100]}")
            except Exception as error:  # noqa: BLE001 - it is told below.
                wrong.append(f"{thread}: {error!r}")

        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            check(not thread.is_alive(), "a call hangs")
        check(not wrong, wrong[:3])

    def case_connection_is_kept(self):
        """Consecutive calls use one connection, also after errors."""
        with self.route.channel() as channel:
            caller, clients = Caller(channel), set()
            for turn in range(20):
                for kind in self.kinds:
                    clients.add(caller.all(kind, asked())[0][0].seen.client)
                if turn % 5 == 0:
                    failure(lambda: caller.one("unary", pb.Ask(failure=fails())))
            # After a failed call, the end of its answer may not have arrived yet. The next call then uses another
            # connection.
            check(len(clients) <= 2, f"{len(clients)} connections: {clients}")

    case_connection_is_kept.needs = frozenset({"client address"})
