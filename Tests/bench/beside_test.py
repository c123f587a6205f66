"""Shows what the table in README.md says about other libraries, by programs that run against these libraries.

A cell that links to a page of the library's own is taken from that page. Each other cell about another library has its
test here, apart from sizes and times, which come from benchmarks/figures (scripts/check-docs compares them), and the row
of languages.
"""

import asyncio
import contextlib
import ctypes
import ctypes.util
import http.server
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import threading

import build_peers
import grpc
import harness
import pyqwest
from connectrpc.client import ConnectClient, ConnectClientSync
from connectrpc.compat import google_protobuf_binary_codec
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.protocol import ProtocolType
from harness import check, check_equal

LIMIT = 60  # seconds, for a call that should end
UNARY, BIDI, CLIENT_STREAM = "/penstock.Echo/Unary", "/penstock.Echo/Bidi", "/penstock.Echo/ClientStream"
ELSEWHERE = ("library, stripped", "CPU of a call alone", "languages")
CHANGE = "interceptors change while calls run"
WAIT = "a message waits, any thread lets it go on"
AGAIN = "an interceptor sends the call again"
FORK = "after fork"
CELLS = {}


def shows(library, row, text):
    """Says which cell of the table the test shows."""
    def keep(test):
        CELLS[row, library] = (text, test)
        return test
    return keep


def plain(cell):
    """The text of a cell, without links and marks."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).replace("`", "").strip()


def needs(name):
    """The packages that a package of Python needs, without its extras."""
    requirements = importlib.metadata.requires(name) or []
    return sorted(re.split(r"[^\w.-]", one)[0] for one in requirements if "extra ==" not in one)


# ---- grpcio ----


class Counting(grpc.UnaryUnaryClientInterceptor):
    """Counts the calls that pass, and sends each `times` times."""

    def __init__(self, times=1):
        self.times, self.seen = times, 0

    def intercept_unary_unary(self, continuation, details, request):
        self.seen += 1
        return [continuation(details, request) for _ in range(self.times)][-1]


@shows("grpcio", "needs", "typing-extensions")
def grpcio_needs(_):
    check_equal(needs("grpcio"), ["typing-extensions"])


@shows("grpcio", CHANGE, "no, a wrapped channel")
def grpcio_wraps(target):
    """An interceptor is in the channel that wraps another, and in no call of the other."""
    seen = Counting()
    with grpc.insecure_channel(target) as channel:
        check(not any("intercept" in name for name in dir(channel)), dir(channel))
        before = channel.unary_unary(UNARY)
        wrapped = grpc.intercept_channel(channel, seen)
        before(b"a", timeout=LIMIT)
        channel.unary_unary(UNARY)(b"a", timeout=LIMIT)
        check_equal(seen.seen, 0, "calls of the channel itself")
        wrapped.unary_unary(UNARY)(b"a", timeout=LIMIT)
        check_equal(seen.seen, 1, "calls of the wrapped channel")


@shows("grpcio", WAIT, "in asyncio")
def grpcio_waits(target):
    async def body(release):
        class Holding(grpc.aio.StreamStreamClientInterceptor):
            async def intercept_stream_stream(self, continuation, details, requests):
                async def held():
                    async for request in requests:
                        await release()
                        yield request
                return await continuation(details, held())

        async def requests():
            yield b"held"

        async with grpc.aio.insecure_channel(target, interceptors=[Holding()]) as channel:
            return [reply async for reply in channel.stream_stream(BIDI)(requests(), timeout=LIMIT)]

    check_equal(with_release(body), [b"held"])


@shows("grpcio", AGAIN, "one request")
def grpcio_again(target):
    """A call with one request is sent twice. The messages of a stream are gone after the first time."""
    class Streams(grpc.StreamUnaryClientInterceptor):
        def intercept_stream_unary(self, continuation, details, requests):
            received.extend(continuation(details, requests).result() for _ in range(2))
            return continuation(details, iter(()))

    received, twice = [], Counting(2)
    with grpc.insecure_channel(target) as channel:
        check_equal(grpc.intercept_channel(channel, twice).unary_unary(UNARY)(b"a", timeout=LIMIT), b"a")
        grpc.intercept_channel(channel, Streams()).stream_unary(CLIENT_STREAM)(iter([b"a", b"b"]), timeout=LIMIT)
    check_equal(received, [b"ab", b""], "what the server has got")


FORKS = """
import os, signal, sys
import grpc
channel = grpc.insecure_channel(sys.argv[1])
call = channel.unary_unary("/penstock.Echo/Unary")
call(b"before", timeout=60)
child = os.fork()
if child == 0:
    signal.alarm(120)  # ends a child that hangs
    for _ in range(100):
        try:
            os._exit(0 if call(b"in the child", timeout=60) == b"in the child" else 2)
        except grpc.RpcError:
            pass  # "calls may fail at first": mostly with UNAVAILABLE, but other codes were seen
    os._exit(4)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@shows("grpcio", FORK, "channels go on in the child; calls may fail at first")
def grpcio_forks(target):
    """By default. Without its support for fork, which an environment variable turns off, the child's call hangs."""
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run([sys.executable, "-c", FORKS, target], env=environment, timeout=LIMIT * 3, check=False)
    check_equal(done.returncode, 0, "exit status")


# ---- connectrpc ----


def method(name, kind):
    import echo_pb2
    return MethodInfo(name=name, service_name="penstock.Echo", input=echo_pb2.Opaque, output=echo_pb2.Opaque,
                      idempotency_level=IdempotencyLevel.UNKNOWN, stream_type=kind)


def message(data=b"held"):
    import echo_pb2
    return echo_pb2.Opaque(data=data)


def connect_client(maker, target, version=pyqwest.HTTPVersion.HTTP2, **options):
    clients = {ConnectClient: (pyqwest.Client, pyqwest.HTTPTransport),
               ConnectClientSync: (pyqwest.SyncClient, pyqwest.SyncHTTPTransport)}
    client, transport = clients[maker]
    return maker(f"http://{target}", codec=google_protobuf_binary_codec(), accept_compression=(), send_compression=None,
                 timeout_ms=LIMIT * 1000, http_client=client(transport(http_version=version)), **options)


class Passing:
    """Counts the calls that pass, and sends each `times` times."""

    def __init__(self, times=1):
        self.times, self.seen, self.replies = times, 0, []

    def intercept_unary_sync(self, call_next, request, context):
        self.seen += 1
        return [call_next(request, context) for _ in range(self.times)][-1]

    def intercept_bidi_stream_sync(self, call_next, requests, context):
        self.replies = [list(call_next(requests, context)) for _ in range(self.times)]
        return iter(())


@shows("connectrpc (Python)", "needs", "protobuf-py, pyqwest, typing-extensions")
def connectrpc_needs(_):
    check_equal(needs("connectrpc"), ["protobuf-py", "pyqwest", "typing-extensions"])


@shows("connectrpc (Python)", CHANGE, "no, fixed with the client")
def connectrpc_is_fixed(target):
    given, late = [Passing()], Passing()
    client = connect_client(ConnectClientSync, target, interceptors=given)
    given.append(late)
    client.execute_unary(request=message(), method=method("Unary", StreamType.UNARY))
    check_equal((given[0].seen, late.seen), (1, 0), "calls that have passed each")
    check(not any("intercept" in name for name in dir(client) if not name.startswith("_")), dir(client))


@shows("connectrpc (Python)", WAIT, "in asyncio")
def connectrpc_waits(target):
    async def body(release):
        class Holding:
            async def intercept_unary(self, call_next, request, context):
                await release()
                return await call_next(request, context)

        client = connect_client(ConnectClient, target, interceptors=[Holding()])
        return await client.execute_unary(request=message(), method=method("Unary", StreamType.UNARY))

    check_equal(with_release(body), message())


@shows("connectrpc (Python)", AGAIN, "one request")
def connectrpc_again(target):
    twice = Passing(2)
    client = connect_client(ConnectClientSync, target, interceptors=[twice])
    check_equal(client.execute_unary(request=message(), method=method("Unary", StreamType.UNARY)), message())
    list(client.execute_bidi_stream(request=iter([message()]), method=method("Bidi", StreamType.BIDI_STREAM)))
    check_equal(twice.replies, [[message()], []], "the replies of a stream that is sent twice")


@shows("connectrpc (Python)", "protocols", "the same three")
def connectrpc_protocols(target):
    check_equal(sorted(one.name for one in ProtocolType), ["CONNECT", "GRPC", "GRPC_WEB"])
    for protocol in ProtocolType:
        client = connect_client(ConnectClientSync, target, protocol=protocol)
        check_equal(client.execute_unary(request=message(), method=method("Unary", StreamType.UNARY)), message(), protocol)


@shows("connectrpc (Python)", "HTTP", "2, 1.1")
def connectrpc_http(target):
    for version in (pyqwest.HTTPVersion.HTTP2, pyqwest.HTTPVersion.HTTP1):
        client = connect_client(ConnectClientSync, target, version)
        check_equal(client.execute_unary(request=message(), method=method("Unary", StreamType.UNARY)), message(), version)


def with_release(body):
    """Runs a coroutine that awaits `release` once, on its own loop; another thread lets it go on. Gives its result."""
    async def on_the_loop():
        loop, waits, gate = asyncio.get_running_loop(), threading.Event(), asyncio.Event()

        async def release():
            waits.set()
            await gate.wait()

        def other_thread():
            if waits.wait(LIMIT):
                order.append("released")
                loop.call_soon_threadsafe(gate.set)

        order = []
        thread = threading.Thread(target=other_thread)
        thread.start()
        try:
            result = await asyncio.wait_for(body(release), LIMIT)
            order.append("ended")
        finally:
            waits.set()
            thread.join()
        check_equal(order, ["released", "ended"])
        return result

    return asyncio.run(on_the_loop())


# ---- grpc++, if it is installed ----


@shows("grpc++", "needs", "abseil, re2, c-ares, OpenSSL, zlib")
def grpcpp_needs(_):
    program = grpcpp_program()
    found = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = ("abseil", "absl_"), ("re2", "re2"), ("c-ares", "cares"), ("OpenSSL", "ssl"), ("zlib", "z")
    wrong = [name for name, file in names if not re.search(rf"lib{file}\w*\.so", found)]
    check(not wrong and "libprotobuf" not in found, wrong, found)


@shows("grpc++", WAIT, "a batch does (Proceed later)")
def grpcpp_waits(target):
    done = subprocess.run([grpcpp_program(), target], stdout=subprocess.PIPE, text=True, timeout=LIMIT * 3, check=True)
    check_equal(json.loads(done.stdout), {"waits": True, "ends": True, "code": 0, "whole_batch": True})


def grpcpp_program():
    return build_peers.BUILT / "grpcpp_interceptors"


# ---- libcurl ----

URL, WRITE_FUNCTION, PORT_USED, PAUSE = 10002, 20011, 0x200000 + 42, 0x10000001
WRITER = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)


class Curl:
    """A handle of libcurl that gets a URL. Its writer pauses the transfer while `paused`."""

    def __init__(self, library, url):
        self.library, self.text, self.paused, self.asked = library, b"", False, 0
        library.curl_easy_init.restype = library.curl_multi_init.restype = ctypes.c_void_p
        self.handle = ctypes.c_void_p(library.curl_easy_init())
        self.writer = WRITER(self.write)
        self.url = url.encode()
        library.curl_easy_setopt(self.handle, URL, ctypes.c_char_p(self.url))
        library.curl_easy_setopt(self.handle, WRITE_FUNCTION, self.writer)

    def write(self, data, size, count, _):
        self.asked += 1
        if self.paused:
            return PAUSE
        self.text += ctypes.string_at(data, size * count)
        return size * count

    def get(self):
        self.text = b""
        return self.library.curl_easy_perform(self.handle), self.text

    def port(self):
        """The local port of the connection that the last transfer has used."""
        port = ctypes.c_long()
        self.library.curl_easy_getinfo(self.handle, PORT_USED, ctypes.byref(port))
        return port.value


@contextlib.contextmanager
def pages():
    class Page(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(200)
            self.send_header("content-length", "4")
            self.end_headers()
            self.wfile.write(b"page")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@shows("libcurl", WAIT, "a transfer does")
def libcurl_waits(_):
    """The whole transfer stands still until curl_easy_pause, on the transfer's thread, lets it go on."""
    library = ctypes.CDLL(ctypes.util.find_library("curl"))
    with pages() as url:
        curl, running = Curl(library, url), ctypes.c_int(1)
        curl.paused = True
        multi = ctypes.c_void_p(library.curl_multi_init())
        library.curl_multi_add_handle(multi, curl.handle)

        def turn():
            library.curl_multi_perform(multi, ctypes.byref(running))
            library.curl_multi_wait(multi, None, 0, 10, None)

        harness.wait_for(lambda: turn() or curl.asked, "the writer is called")
        turn()
        check(running.value == 1 and not curl.text, "the transfer has not waited")
        curl.paused = False
        library.curl_easy_pause(curl.handle, 0)
        harness.wait_for(lambda: turn() or not running.value, "the transfer ends")
        check_equal(curl.text, b"page")
        library.curl_multi_remove_handle(multi, curl.handle)
        library.curl_multi_cleanup(multi)
        library.curl_easy_cleanup(curl.handle)


@shows("libcurl", FORK, "make new handles")
def libcurl_forks(_):
    """In the child a handle of the parent writes into the parent's connection; a new one makes its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=LIMIT * 3,
                          check=False)
    check_equal(done.returncode, 0, f"exit status ({done.stderr[-500:]})")
    told = json.loads(done.stdout)
    check_equal(told["old"], told["parent"], "the port of the parent's handle in the child")
    check(told["new"] not in (0, told["parent"]) and told["page"] == "page", told)


def fork_with_curl():
    library = ctypes.CDLL(ctypes.util.find_library("curl"))
    with pages() as url:
        curl = Curl(library, url)
        curl.get()
        parent = curl.port()
        child = os.fork()
        if child == 0:
            signal.alarm(120)  # ends a child that hangs
            new = Curl(library, url)
            _, page = new.get()
            curl.get()
            print(json.dumps({"parent": parent, "old": curl.port(), "new": new.port(), "page": page.decode()}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


# ---- The table ----


def cells():
    """Each cell about another library has a test or a link to that library's page, and each test its cell."""
    text = (harness.ROOT / "README.md").read_text()
    table = [line.strip("|").split("|") for line in text[text.index("| | penstock"):].split("\n\n")[0].splitlines()]
    heads, wrong, found = [plain(head) for head in table[0]], [], set()
    for row in table[2:]:
        title = plain(row[0])
        for head, cell in list(zip(heads, row))[2:]:
            shown, _ = CELLS.get((title, head), (None, None))
            found.add((title, head))
            if shown is not None and shown != plain(cell):
                wrong.append(f"{head}, {title}: {plain(cell)!r}, but the test shows {shown!r}")
            if shown is None and plain(cell) and "](https://" not in cell and title not in ELSEWHERE:
                wrong.append(f"{head}, {title}: {plain(cell)!r} has neither a test nor a link")
    wrong += [f"no cell for {key}" for key in CELLS.keys() - found]
    check(not wrong, "\n  ".join(["", *wrong]))


def run(suite, target):
    harness.generate_protos()
    suite.run("README's table: each cell is shown or linked", cells)
    has_grpcpp = build_peers.build(["grpcpp_interceptors"])["grpcpp_interceptors"] is not None
    for (title, library), (_, test) in CELLS.items():
        if library == "grpc++" and not has_grpcpp:
            continue  # Its tests run where the benchmarks have all their peers: scripts/doctor --bench installs it.
        suite.run(f"README's table: {library}: {title}", test, target)


if __name__ == "__main__":
    fork_with_curl()
