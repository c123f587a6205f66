"""The applications that the servers of this suite run, as ASGI and as WSGI. They have the services probe.Probe and
grpc.testing.TestService on connectrpc, and pages of HTML such as gateways and load balancers send instead of an answer.

    /probe.Probe/..., /grpc.testing.TestService/..., /penstock.Echo/...    the services
    /under/a/prefix/...            the same services
    /page/STATUS/...               a page of HTML with this status; 3xx redirects to the service
"""

import asyncio
import contextvars

import opaque
import probe_pb2 as pb
import service
import testing_pb2 as testing
from connectrpc.code import Code
from connectrpc.compat import google_protobuf_codecs
from connectrpc.compression.gzip import GzipCompression
from connectrpc.compression.zstd import ZstdCompression
from connectrpc.errors import ConnectError, ErrorDetail
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.server import ConnectASGIApplication, ConnectWSGIApplication, Endpoint, EndpointSync
from protobuf.wkt import Any

CODES = (None, Code.CANCELED, Code.UNKNOWN, Code.INVALID_ARGUMENT, Code.DEADLINE_EXCEEDED, Code.NOT_FOUND, Code.ALREADY_EXISTS,
         Code.PERMISSION_DENIED, Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION, Code.ABORTED, Code.OUT_OF_RANGE,
         Code.UNIMPLEMENTED, Code.INTERNAL, Code.UNAVAILABLE, Code.DATA_LOSS, Code.UNAUTHENTICATED)
KINDS = {"unary": StreamType.UNARY, "server_stream": StreamType.SERVER_STREAM, "client_stream": StreamType.CLIENT_STREAM,
         "bidi_stream": StreamType.BIDI_STREAM}
COMPRESSIONS = (GzipCompression(), ZstdCompression())
# The request that the current task or thread answers, as the server describes it: an ASGI scope, or a WSGI environ.
request = contextvars.ContextVar("request")


def method(path, kind, asks, answers, idempotency=IdempotencyLevel.UNKNOWN):
    _, name, method = path.split("/")
    return MethodInfo(name=method, service_name=name, input=asks, output=answers, idempotency_level=idempotency,
                      stream_type=KINDS[kind])


class ConnectCall(service.Call):
    def __init__(self, context):
        self.context = context
        self.headers = list(context.request_headers.allitems())

    def add_header(self, name, value):
        self.context.response_headers.add(name, value)

    def add_trailer(self, name, value):
        self.context.response_trailers.add(name, value)

    def failure(self, code, message, details):
        return ConnectError(CODES[code], message,
                            [ErrorDetail(Any(type_url=detail.type_url, value=detail.value)) for detail in details])

    def seen(self):
        scope = request.get()
        timeout = self.context.timeout_ms
        seen = pb.Seen(verb=self.context.http_method, timeout_ms=-1 if timeout is None else timeout,
                       headers=[pb.Field(name=name, value=value.encode()) for name, value in self.headers])
        if "type" in scope:
            seen.http, seen.path, seen.query = scope["http_version"], scope["path"], scope["query_string"].decode()
            seen.client = f"{scope['client'][0]}:{scope['client'][1]}"
        else:
            seen.http = scope["SERVER_PROTOCOL"].removeprefix("HTTP/")
            seen.path, seen.query = scope["PATH_INFO"], scope["QUERY_STRING"]
        return seen


def idempotency_of(name):
    return IdempotencyLevel.NO_SIDE_EFFECTS if name == "Get" else IdempotencyLevel.UNKNOWN


class App(ConnectASGIApplication):
    def __init__(self, path, endpoints, codecs=None):
        self.endpoints_path = path
        super().__init__(service=None, endpoints=lambda _: endpoints, codecs=codecs or google_protobuf_codecs(),
                         compressions=COMPRESSIONS, read_max_bytes=None)

    @property
    def path(self):
        return self.endpoints_path


def probe_endpoints(maker, probe, methods):
    """The endpoints of probe.Probe, which `probe` implements. `maker`: the class of connectrpc that makes them."""

    def endpoint(name, kind, function):
        path = service.SERVICE + name
        return path, getattr(maker, kind)(
            method=method(path, kind, pb.Ask, pb.Answer, idempotency_of(name)),
            function=lambda ask, context: function(probe, ask, ConnectCall(context)))

    return dict(endpoint(*row) for row in methods)


def probe_app():
    return App(service.SERVICE, probe_endpoints(Endpoint, service.Probe(), service.METHODS))


# ---- grpc.testing.TestService, for the cases of Tests/interop/client ----


def was_compressed(context):
    names = ("content-encoding", "connect-content-encoding", "grpc-encoding")
    return any(context.request_headers.get(name, "identity") != "identity" for name in names)


class TestService:
    """Implements TestService, except what needs grpcio's own metadata (Tests/interop/grpcio_server.py).
    `expect_compressed` is checked for the whole call, since connectrpc does not report it for each message."""

    def __init__(self):
        self.holds = service.Holds()
        self.written = {}

    @staticmethod
    def echo(context):
        headers = context.request_headers
        for value in headers.getall("x-grpc-test-echo-initial"):
            context.response_headers.add("x-grpc-test-echo-initial", value)
        for value in headers.getall("x-grpc-test-echo-trailing-bin"):
            context.response_trailers.add("x-grpc-test-echo-trailing-bin", value)
        return headers

    @staticmethod
    def check(ask, context):
        if ask.HasField("expect_compressed") and ask.expect_compressed.value != was_compressed(context):
            raise ConnectError(Code.INVALID_ARGUMENT, "the request is not compressed as it says")

    @staticmethod
    def status(ask):
        if ask.response_status.code:
            raise ConnectError(CODES[ask.response_status.code], ask.response_status.message)

    async def empty(self, ask, context):
        headers = self.echo(context)
        if "x-release" in headers:
            self.holds.release(headers["x-release"])
        if "x-count" in headers:
            context.response_trailers.add("x-written", str(self.written.get(headers["x-count"], 0)))
        return testing.Empty()

    async def unary(self, ask, context):
        self.echo(context)
        self.check(ask, context)
        self.status(ask)
        return testing.SimpleResponse(payload=testing.Payload(body=bytes(ask.response_size)))

    async def cacheable(self, ask, context):
        context.response_headers.add("cache-control", "max-age=60, public")
        return await self.unary(ask, context)

    async def output(self, ask, context):
        headers = self.echo(context)
        self.status(ask)
        async for answer in self.responses(ask, headers):
            yield answer

    async def responses(self, ask, headers):
        for parameters in ask.response_parameters:
            if parameters.interval_us:
                # The request asks for this pause before the message. No test waits for it.
                await asyncio.sleep(parameters.interval_us / 1e6)
            yield testing.StreamingOutputCallResponse(payload=testing.Payload(body=bytes(parameters.size)))
            if key := headers.get("x-counted"):
                self.written[key] = self.written.get(key, 0) + 1

    async def input(self, asks, context):
        self.echo(context)
        total = 0
        async for ask in asks:
            self.check(ask, context)
            total += len(ask.payload.body)
        return testing.StreamingInputCallResponse(aggregated_payload_size=total)

    async def full_duplex(self, asks, context):
        headers = self.echo(context)
        await self.holds.wait(headers.get("x-hold"))
        async for ask in asks:
            self.status(ask)
            async for answer in self.responses(ask, headers):
                yield answer

    async def half_duplex(self, asks, context):
        headers = self.echo(context)
        for ask in [ask async for ask in asks]:
            async for answer in self.responses(ask, headers):
                yield answer


def testing_app():
    tests = TestService()
    rows = (
        ("EmptyCall", "unary", testing.Empty, testing.Empty, tests.empty),
        ("UnaryCall", "unary", testing.SimpleRequest, testing.SimpleResponse, tests.unary),
        ("CacheableUnaryCall", "unary", testing.SimpleRequest, testing.SimpleResponse, tests.cacheable),
        ("StreamingOutputCall", "server_stream", testing.StreamingOutputCallRequest, testing.StreamingOutputCallResponse,
         tests.output),
        ("StreamingInputCall", "client_stream", testing.StreamingInputCallRequest, testing.StreamingInputCallResponse,
         tests.input),
        ("FullDuplexCall", "bidi_stream", testing.StreamingOutputCallRequest, testing.StreamingOutputCallResponse,
         tests.full_duplex),
        ("HalfDuplexCall", "bidi_stream", testing.StreamingOutputCallRequest, testing.StreamingOutputCallResponse,
         tests.half_duplex),
    )
    name = "/grpc.testing.TestService/"
    return App(name, {name + row[0]: getattr(Endpoint, row[1])(method=method(name + row[0], *row[1:4]), function=row[4])
                      for row in rows})


# ---- penstock.Echo ----


class Echo(opaque.Echo):
    def value(self, context, name):
        return context.request_headers.get(name)


def echo_app():
    """The service penstock.Echo, which sends messages back unchanged. It accepts several names of encodings."""
    echo, name = Echo(), "/penstock.Echo/"
    rows = (("Unary", "unary", echo.unary), ("ServerStream", "server_stream", echo.server_stream),
            ("ClientStream", "client_stream", echo.client_stream), ("Bidi", "bidi_stream", echo.bidi))
    endpoints = {name + row[0]: getattr(Endpoint, row[1])(method=method(name + row[0], row[1], bytes, bytes), function=row[2])
                 for row in rows}
    return App(name, endpoints, [opaque.Codec(codec) for codec in ("proto", "json", "thing")])


# ---- ASGI ----


def page(status, location):
    """The body and the headers of a page such as a gateway may send."""
    if status == 204:
        return b"", []
    body = f"<html><head><title>{status}</title></head><body><h1>{status}</h1>{'no call came here. ' * 40}</body></html>".encode()
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if 300 <= status < 400:
        headers.append((b"location", location.encode()))
    return body, headers


class Asgi:
    def __init__(self):
        self.apps = {app.path: app for app in (probe_app(), testing_app(), echo_app())}

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await self.lifespan(receive, send)
        request.set(scope)
        path = scope["path"]
        if path.startswith("/page/"):
            _, _, status, rest = path.split("/", 3)
            return await self.page(int(status), "/" + rest, receive, send)
        if path.startswith(service.PREFIX + "/"):
            path = path.removeprefix(service.PREFIX)
            scope = {**scope, "root_path": service.PREFIX}
        service_path = path[:path.find("/", 1) + 1]
        if service_path in self.apps:
            return await self.apps[service_path](scope, receive, send)
        return await self.page(404, "/", receive, send)

    @staticmethod
    async def lifespan(receive, send):
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    @staticmethod
    async def page(status, location, receive, send):
        more = True
        while more:
            message = await receive()
            more = message["type"] == "http.request" and message.get("more_body", False)
        body, headers = page(status, location)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


# ---- WSGI ----


class WsgiApp(ConnectWSGIApplication):
    path = service.SERVICE

    def __init__(self):
        super().__init__(endpoints=probe_endpoints(EndpointSync, service.SyncProbe(), service.SYNC_METHODS),
                         codecs=google_protobuf_codecs(), compressions=COMPRESSIONS, read_max_bytes=None)

    def __call__(self, environ, start_response):
        request.set(environ)
        return super().__call__(environ, start_response)


def __getattr__(name):
    """Makes `asgi` or `wsgi` at the first use, for servers that load an application by its name."""
    if name == "asgi":
        value = Asgi()
    elif name == "wsgi":
        value = WsgiApp()
    else:
        raise AttributeError(name)
    globals()[name] = value
    return value
