"""gevent and eventlet: calls wait in the hub."""

from __future__ import annotations

import textwrap

from green_helpers import BOTH, cases, green


@cases("not patched", "patched before", "patched after", often=("gevent, not patched", *BOTH))
def test_calls_wait_in_the_hub(package: str, patched: str, server: str) -> None:
    """While three calls wait, another greenlet sees that all three have reached the server."""
    text = """
    waiting = [spawn(code_of, hang, b"", timeout=60) for _ in range(3)]
    hanging(3)
    channel.close()
    assert finished(waiting) == [StatusCode.CANCELLED] * 3
    with raises(penstock.ClosedError): echo(b"x")

    channel = penstock.Channel(target, tls=False)
    echo = channel.unary_unary("/penstock.Echo/Unary")
    assert finished([spawn(echo, b"%d" % number) for number in range(50)]) == [b"%d" % number for number in range(50)]
    assert code_of(channel.unary_unary("/penstock.Probe/Hang"), b"", timeout=0.01) is StatusCode.DEADLINE_EXCEEDED
    response, call = echo.with_call(b"y")
    assert (response, call.code()) == (b"y", StatusCode.OK)
    repeated = channel.unary_stream("/penstock.Echo/ServerStream")(b"x", metadata=[("x-repeat", "100")])
    assert list(repeated) == [b"x"] * 100
    def requests():
        for number in range(3):
            turn()
            yield b"%d" % number
    assert list(channel.stream_stream("/penstock.Echo/Bidi")(requests())) == [b"0", b"1", b"2"]
    assert channel.stream_unary("/penstock.Echo/ClientStream")(requests()) == b"012"
    assert channel.stream_unary("/penstock.Echo/ClientStream")([bytes(100000)] * 20) == bytes(2000000)
    many = json.dumps({"count": 500, "size": 5000}).encode()
    numbers = [int.from_bytes(each[:4], "big") for each in channel.unary_stream("/penstock.Probe/Stream")(many)]
    assert numbers == list(range(500))

    call = channel.stream_stream("/penstock.Echo/Bidi")()
    assert call.write(b"1")
    assert next(call) == b"1"
    assert call.initial_metadata() is not None
    call.done_writing()
    assert next(call, None) is None
    assert call.code() is StatusCode.OK

    future = echo.future(b"z")
    told = Queue()
    def tell(call):
        turn()
        told.put(call.result())
    future.add_done_callback(tell)
    assert future.result(30) == b"z"
    assert told.get(timeout=60) == b"z"
    assert told.empty()
    future = channel.unary_unary("/penstock.Probe/Hang").future(b"")
    with raises(penstock.TimedOutError): future.result(0.01)
    assert future.cancel("enough")
    assert (future.code(), future.details()) == (StatusCode.CANCELLED, "enough")

    assert channel.wait_connectivity(penstock.Connectivity.CONNECTING) is penstock.Connectivity.READY
    with raises(penstock.TimedOutError): channel.wait_connectivity(penstock.Connectivity.READY, 0.01)
    closing = spawn(channel.wait_connectivity, penstock.Connectivity.READY)
    turn()
    channel.close()
    assert finished([closing]) == [penstock.Connectivity.SHUTDOWN]
    with raises(penstock.ClosedError): channel.wait_connectivity(penstock.Connectivity.SHUTDOWN)
    from penstock._calls.carried import left
    assert left() == 0
    # No thread of the package: neither of Python nor of the library.
    assert not [name for name in map(threads_name, os.listdir("/proc/self/task")) if "penstock" in name]
    penstock.default_runtime().shutdown()
    print("last")
    """
    names = """
import json
def threads_name(number):
    with open(f"/proc/self/task/{number}/comm") as name: return name.read()
"""
    assert green(package, patched, names + textwrap.dedent(text), server) == "last\n"


@cases("patched before", often=BOTH)
def test_what_breaks_a_wait_off_cancels_the_call(package: str, patched: str, server: str) -> None:
    text = """
    with raises(Timeout), Timeout(0.02): hang(b"")
    hanging(0)
    assert echo(b"on") == b"on"

    waiting = spawn(hang, b"")
    hanging(1)
    waiting.kill()
    hanging(0)

    # The exceptions that end a wait may be of any class.
    class Enough(Exception): pass
    with raises(Enough), Timeout(0.02, Enough()): hang(b"")
    hanging(0)

    call = hang_stream(b"")
    assert next(call) == b"first"
    with raises(Timeout), Timeout(0.02): next(call)
    assert call.code() is StatusCode.CANCELLED
    hanging(0)

    # A wait for something else than messages leaves the call alone.
    call = hang_stream(b"")
    for wait in (call.code, call.details, call.trailing_metadata):
        with raises(Timeout), Timeout(0.01): wait()
    future = hang.future(b"")
    with raises(Timeout), Timeout(0.01): future.result()
    with raises(Timeout), Timeout(0.01): future.result(60)
    hanging(2)
    del call, future, wait
    # In Python 3.13 an exception that a function of `contextmanager` takes is in a cycle with its frames.
    gc.collect()
    hanging(0)

    # Waiting for room.
    full = channel.stream_stream("/penstock.Probe/HangBidi")()
    written = []
    def fill():
        while full.write(bytes(100000)): written.append(1)
    filling = spawn(fill)
    hanging(1)
    settled(lambda: len(written))
    assert full.is_active()
    filling.kill()
    assert full.code() is StatusCode.CANCELLED
    hanging(0)

    # An iterator that never ends, when nobody wants its requests any more.
    def endless():
        while True:
            turn()
            yield bytes(100000)
    assert code_of(channel.stream_unary("/penstock.Probe/Early"), endless()) is StatusCode.FAILED_PRECONDITION
    call = bidi(endless())
    next(call)
    call.cancel()
    assert call.code() is StatusCode.CANCELLED
    assert echo(b"on") == b"on"
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"


@cases("not patched", "patched before")
def test_ctrl_c_reaches_the_main_greenlet(package: str, patched: str, server: str) -> None:
    text = """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    def interrupt():
        # The hub carries this call out, so it ends while the main greenlet waits.
        hanging(1)
        os.kill(os.getpid(), signal.SIGINT)
    def interrupted(work):
        with raises(KeyboardInterrupt):
            original("_thread", "start_new_thread")(interrupt, ())
            work()
    interrupted(lambda: hang(b""))
    hanging(0)
    call = hang_stream(b"")
    next(call)
    interrupted(lambda: next(call))
    assert call.code() is StatusCode.CANCELLED
    # It is raised in the hub itself, which then still drives.
    class Stop(penstock.Interceptor):
        def on_start(self, hop): raise KeyboardInterrupt
    channel.add_interceptor(Stop(), methods="/penstock.Echo/Bidi")
    with raises(KeyboardInterrupt): list(bidi([b"1"]))
    assert echo(b"on") == b"on"
    print("last")
    """
    # gevent itself tells of a KeyboardInterrupt that comes in its hub.
    assert green(package, patched, text, server, is_quiet=False) == "last\n"


@cases("not patched", "patched before", "patched after")
def test_threads_of_the_system_make_calls(package: str, patched: str, server: str) -> None:
    """Their calls are driven by the hub, and they wait without one."""
    text = """
    drivers = set()
    class See(penstock.Interceptor):
        def on_start(self, hop): drivers.add(threading.get_native_id())
        def on_status(self, hop): drivers.add(threading.get_native_id())
    channel.add_interceptor(See())
    def calls(data):
        assert threading.get_native_id() != os.getpid()
        other = penstock.Channel(target, tls=False)
        assert other.unary_unary("/penstock.Echo/Unary")(data) == data
        other.close()
        assert list(bidi(iter([data, data]))) == [data, data]
        with raises(penstock.TimedOutError): hang.future(b"").result(0.01)
        assert code_of(hang, b"", timeout=0.01) is StatusCode.DEADLINE_EXCEEDED
        return echo(data)
    waiting = [spawn(on_os_thread, calls, (b"%d" % number,)) for number in range(4)]
    assert finished(waiting) == [b"0", b"1", b"2", b"3"]
    # One that no package knows.
    done = []
    end, begin = os.pipe()
    original("_thread", "start_new_thread")(lambda: (done.append(calls(b"x")), os.write(begin, b"x")), ())
    readable(end)
    assert done == [b"x"]
    assert drivers == {os.getpid()}
    penstock.default_runtime().shutdown()
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"


@cases("patched before")
def test_hubs_of_several_threads(package: str, patched: str, server: str) -> None:
    """Greenlets of a second thread wait in that thread's hub; the first one drives."""
    text = """
    def second():
        waiting = [spawn(code_of, hang, b"", cancel_scope=scope) for _ in range(3)]
        hanging(3)
        scope.cancel()
        codes = finished(waiting)
        with raises(Timeout), Timeout(0.01): hang(b"")
        with raises(penstock.TimedOutError): hang.future(b"").result(0.01)
        return codes
    scope = penstock.CancelScope()
    print(len(on_os_thread(second, ())))
    """
    assert green(package, patched, text, server) == "3\n"


# The order of gunicorn: the program is loaded, and may make calls, before the fork; the worker patches, and gives
# itself a hub.
FORKS = {
    "gevent": "gevent.monkey.patch_all(); gevent.reinit()",
    "eventlet": "eventlet.hubs.use_hub(); eventlet.monkey_patch()",
}


@cases("not patched", "patched before", often=("gevent, not patched", "eventlet, patched before"))
def test_a_forked_child_goes_on(package: str, patched: str, server: str) -> None:
    text = f"""
    import gc
    if "{package}" == "gevent": import gevent.monkey
    assert echo(b"parent") == b"parent"
    hangs = hang.future(b"")
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                {FORKS[package]}
                assert echo(b"child") == b"child"
                waiting = [spawn(code_of, hang, b"", timeout=0.02) for _ in range(3)]
                assert finished(waiting) == [StatusCode.DEADLINE_EXCEEDED] * 3
                with raises(Timeout), Timeout(0.01): hang(b"")
                other = penstock.Channel(target, tls=False)
                assert list(other.stream_stream("/penstock.Echo/Bidi")(iter([b"1"]))) == [b"1"]
                assert hangs.code() is StatusCode.CANCELLED
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    for child in children:
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended: break
            assert echo(b"parent") == b"parent"
        assert status == 0, status
    hanging(1)
    hangs.cancel()
    hanging(0)
    print("last")
    """
    assert green(package, patched, text, server) == "last\n"
