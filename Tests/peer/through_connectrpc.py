"""Calls of connectrpc's client to penstock-peer: Connect and gRPC-Web over both versions of HTTP, and gRPC over
HTTP/2."""

import pathlib

import opaque
import pyqwest
from connectrpc.client import ConnectClientSync, ResponseMetadata
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.protocol import ProtocolType
from harness import check, check_equal

# A google.rpc.Status with one detail. Its message equals that of the call's status, because gRPC's clients compare
# both.
DETAILS = "CAkSA2EgYhoqCiN0eXBlLmdvb2dsZWFwaXMuY29tL3Byb2JlLnYxLkRldGFpbBIDAQL/"
VERSIONS = {"1.1": pyqwest.HTTPVersion.HTTP1, "2": pyqwest.HTTPVersion.HTTP2}


KINDS = {"Unary": StreamType.UNARY, "ServerStream": StreamType.SERVER_STREAM, "ClientStream": StreamType.CLIENT_STREAM,
         "Bidi": StreamType.BIDI_STREAM, "Nothing": StreamType.UNARY}


def method(name):
    return MethodInfo(name=name, service_name="penstock.Echo", stream_type=KINDS[name], input=bytes, output=bytes,
                      idempotency_level=IdempotencyLevel.NO_SIDE_EFFECTS)


def failure(code, work):
    try:
        work()
    except ConnectError as error:
        check_equal(error.code, code, error)
        return error
    check(False, f"no error {code}")
    return None


def unary(client, protocol):
    for size in (0, 1, 70_000, 3 << 20):
        with ResponseMetadata() as seen:
            answer = client.execute_unary(
                request=bytes(size), method=method("Unary"),
                headers={"x-headers-a": "1", "x-trailers-b": "2", "x-compress": "gzip"})
        check_equal(answer, bytes(size))
        check_equal((seen.headers.get("x-headers-a"), seen.trailers.get("x-trailers-b")), ("1", "2"))
    if protocol is ProtocolType.CONNECT:
        for message in (b"", b"text", b"\xff\xfe" * 1000):
            answer = client.execute_unary(request=message, method=method("Unary"), use_get=True)
            check_equal(answer, message)


def streams(client, protocol):
    messages = [b"", b"a", bytes(200_000)]
    answer = client.execute_client_stream(request=iter(messages), method=method("ClientStream"))
    check_equal(answer, b"".join(messages))
    for headers in ({}, {"x-compress": "gzip"}):
        answers = client.execute_server_stream(
            request=b"hi", method=method("ServerStream"), headers={"x-count": "30", **headers})
        check_equal(list(answers), [b"hi"] * 30)
        check_equal(list(client.execute_bidi_stream(request=iter(messages), method=method("Bidi"), headers=headers)), messages)


def errors(client, protocol):
    headers = {"x-status": "9", "x-message": "a b", "x-details-bin": DETAILS}
    error = failure(Code.FAILED_PRECONDITION, lambda: client.execute_unary(
        request=b"hi", method=method("Unary"), headers=headers))
    check_equal(error.message, "a b")
    details = [(detail.type_name, detail.message_bytes) for detail in error.details]
    check_equal(details, [("probe.v1.Detail", b"\x01\x02\xff")])
    seen = []
    error = failure(Code.FAILED_PRECONDITION, lambda: seen.extend(client.execute_server_stream(
        request=b"hi", method=method("ServerStream"), headers={"x-count": "3", **headers})))
    check_equal((seen, error.message), ([b"hi"] * 3, "a b"))
    failure(Code.DEADLINE_EXCEEDED, lambda: client.execute_unary(
        request=b"hi", method=method("Unary"), headers={"x-delay-ms": "60000"}, timeout_ms=200))
    failure(Code.UNIMPLEMENTED, lambda: client.execute_unary(request=b"hi", method=method("Nothing")))


def run(suite, servers, certificates):
    authority = pathlib.Path(certificates.path("ca.pem")).read_bytes()
    for protocol in ProtocolType:
        for version, number in VERSIONS.items():
            if protocol is ProtocolType.GRPC and version == "1.1":
                continue
            for tls in (False, True):
                address = f"http{'s' if tls else ''}://{servers[tls].address}"
                for codec in ("proto", "json", "own"):
                    transport = pyqwest.SyncHTTPTransport(tls_ca_cert=authority, http_version=number)
                    client = ConnectClientSync(address, codec=opaque.Codec(codec), protocol=protocol,
                                               http_client=pyqwest.SyncClient(transport))
                    for test in (unary, streams, errors):
                        name = f"connectrpc {test.__name__} {protocol.name} {version} {'tls ' if tls else ''}{codec}"
                        suite.run(name, test, client, protocol)
