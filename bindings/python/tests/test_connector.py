"""The program's connectors: docs/channel.md."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import socket
import ssl
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

import aio_helpers
import penstock
from aio_helpers import run_on
from helpers import eventually, unary
from penstock import Channel, Connecting, StatusCode, aio

SOON = {"initial_backoff_ms": 10, "max_backoff_ms": 10, "connect_timeout_ms": 2000}
# One attempt to connect: after it nothing calls the connector any more.
ONCE = {"initial_backoff_ms": 600000, "max_backoff_ms": 600000}


def dial(connecting: Connecting) -> socket.socket:
    family, address = connecting.sockaddr
    made = socket.socket(family)
    made.connect(address)
    return made


def unavailable(channel: Channel) -> str:
    with pytest.raises(penstock.RpcError) as failure:
        unary(channel)
    assert failure.value.code() is StatusCode.UNAVAILABLE
    return failure.value.details()


def test_a_function_returns_a_socket(server: str) -> None:
    seen: List[Any] = []

    def connect(connecting: Connecting) -> socket.socket:
        seen.append((connecting.address, connecting.target, threading.current_thread().name))
        return dial(connecting)

    with Channel(server, tls=False, connector=connect) as channel:
        assert unary(channel) == b"x"
        assert unary(channel) == b"x"
    assert seen == [(server, server, "penstock connector")]


def test_a_function_returns_a_descriptor(server: str) -> None:
    with Channel(server, tls=False, connector=lambda connecting: dial(connecting).detach()) as channel:
        assert unary(channel) == b"x"


def test_a_function_lets_the_library_connect(server: str) -> None:
    seen: List[Connecting] = []
    with Channel(server, tls=False, connector=seen.append) as channel:
        assert unary(channel) == b"x"
    assert len(seen) == 1
    with pytest.raises(penstock.AlreadyError):
        seen[0].decline()
    seen.clear()


def test_tls_runs_on_the_socket(servers: Dict[str, str], certificates: Path) -> None:
    tls = {"roots_file": str(certificates / "ca.pem")}
    with Channel(servers["tls"], tls=tls, connector=dial) as channel:
        assert unary(channel) == b"x"


def test_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "of a side-car")
    seen: List[Any] = []

    def connect(connecting: Connecting) -> Optional[socket.socket]:
        seen.append((connecting.address, connecting.sockaddr))
        raise OSError("no side-car")

    with Channel(f"unix:{path}", connector=connect, options=SOON) as channel:
        assert "the connector has failed: OSError: no side-car" in unavailable(channel)
    assert seen[0] == (f"unix:{path}", (socket.AF_UNIX, path))


def test_ipv6_and_abstract_addresses() -> None:
    seen: List[Any] = []

    def connect(connecting: Connecting) -> Optional[socket.socket]:
        seen.append(connecting.sockaddr)
        raise OSError

    for target in ("ipv6:[2001:db8::1]:443", "unix-abstract:name", "vsock:2:5000"):
        with Channel(target, tls=False, connector=connect, options=SOON) as channel:
            assert "the connector has failed: OSError" in unavailable(channel)
    wanted = [
        (socket.AF_INET6, ("2001:db8::1", 443, 0, 0)),
        (socket.AF_UNIX, b"\0name"),
        (socket.AF_VSOCK, (2, 5000)),
    ]
    assert [address for number, address in enumerate(seen) if address not in seen[:number]] == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("road", "TypeError: the connector returned 'road'"),
        (True, "TypeError: the connector returned True"),
        (-1, "descriptor -1 is not open"),
        (socket.socket, "is a socket that is not connected"),
    ],
)
def test_wrong_answers(server: str, given: Any, words: str) -> None:
    made: List[socket.socket] = []

    def connect(connecting: Connecting) -> Any:
        if given is not socket.socket:
            return given
        made.append(socket.socket())
        return made[-1]

    with Channel(server, tls=False, connector=connect, options=ONCE) as channel:
        assert words in unavailable(channel)
    for one in made:
        assert one.fileno() >= 0
        one.close()


def test_what_is_no_connector(server: str) -> None:
    wrong: Any = "road"
    with pytest.raises(TypeError, match="a Connector, or a function"):
        Channel(server, tls=False, connector=wrong)


class Later(penstock.Connector):
    def __init__(self) -> None:
        self.asked = threading.Event()
        self.connecting: List[Connecting] = []
        self.cancelled: List[Connecting] = []

    def connect(self, connecting: Connecting) -> None:
        self.connecting.append(connecting)
        self.asked.set()

    def cancel(self, connecting: Connecting) -> None:
        self.cancelled.append(connecting)


def test_a_connector_answers_later(server: str) -> None:
    later = Later()

    def answer() -> None:
        later.asked.wait(20)
        later.connecting[0].done(dial(later.connecting[0]))

    thread = threading.Thread(target=answer)
    thread.start()
    with Channel(server, tls=False, connector=later) as channel:
        assert unary(channel) == b"x"
    thread.join()
    assert later.cancelled == []


def test_nobody_waits_any_more(server: str) -> None:
    later = Later()
    with Channel(server, tls=False, connector=later, options={"connect_timeout_ms": 30, **ONCE}) as channel:
        assert "connect timeout: the connector has not answered" in unavailable(channel)
        eventually(lambda: later.cancelled == later.connecting)
        late = dial(later.connecting[0])
        with pytest.raises(penstock.GoneError):
            later.connecting[0].done(late)
        assert late.fileno() >= 0
        late.close()
    assert len(later.cancelled) == 1


def test_a_connector_drops_its_question(server: str) -> None:
    class Forgets(penstock.Connector):
        def connect(self, connecting: Connecting) -> None: ...

    with Channel(server, tls=False, connector=Forgets(), options=SOON) as channel:
        assert "the connector has given no socket" in unavailable(channel)


def test_it_is_asked_again_after_a_loss(server: str) -> None:
    ends: List[socket.socket] = []

    def connect(connecting: Connecting) -> socket.socket:
        if ends:
            return dial(connecting)
        mine, its = socket.socketpair()
        ends.append(mine)
        mine.close()
        return its

    def works() -> bool:
        try:
            return bool(unary(channel) == b"x")
        except penstock.RpcError:
            return False

    with Channel(server, tls=False, connector=connect, options=SOON) as channel:
        eventually(works)


def test_context_of_the_registration(server: str) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: List[str] = []

    def connect(connecting: Connecting) -> None:
        seen.append(variable.get())

    variable.set("of the channel")
    with Channel(server, tls=False, connector=connect) as channel:
        contextvars.Context().run(unary, channel)
    assert seen == ["of the channel"]


def test_an_async_function_needs_a_loop(server: str) -> None:
    async def connect(connecting: Connecting) -> None: ...

    class Callable:
        async def __call__(self, connecting: Connecting) -> None: ...

    for function in (connect, functools.partial(connect), Callable()):
        with pytest.raises(TypeError, match=r"needs a channel of penstock\.aio"):
            Channel(server, tls=False, connector=function)
    hidden: Any = lambda connecting: connect(connecting)  # noqa: E731
    with Channel(server, tls=False, connector=hidden, options=SOON) as channel:
        assert "write it as an async function" in unavailable(channel)


def test_a_connector_is_not_async(server: str) -> None:
    class Wrong(penstock.Connector):
        async def connect(self, connecting: Connecting) -> None:  # type: ignore[override]
            ...

    async def work() -> None:
        with pytest.raises(TypeError, match="can't be async"):
            aio.Channel(server, tls=False, connector=Wrong())

    run_on(asyncio.new_event_loop, work())


def test_a_socket_of_tls_is_refused(servers: Dict[str, str], certificates: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    made: List[socket.socket] = []

    def connect(connecting: Connecting) -> socket.socket:
        made.append(context.wrap_socket(dial(connecting), server_hostname="localhost"))
        return made[-1]

    with Channel(servers["tls"], tls=False, connector=connect, options=ONCE) as channel:
        assert "TypeError: TLS is the library's" in unavailable(channel)
    for one in made:
        one.close()


def test_any_object_with_a_descriptor(server: str) -> None:
    """As sockets of trio, gevent and eventlet are, which are no `socket.socket`."""

    class Wrapped:
        def __init__(self, below: socket.socket) -> None:
            self.fileno, self.close = below.fileno, below.close

    given: List[Any] = []

    def connect(connecting: Connecting) -> Any:
        given.append(Wrapped(dial(connecting)))
        return given[-1]

    with Channel(server, tls=False, connector=connect) as channel:
        assert unary(channel) == b"x"
    assert given[0].fileno() == -1


def test_a_refused_number_is_closed(server: str) -> None:
    numbers: List[int] = []

    def connect(connecting: Connecting) -> int:
        numbers.append(socket.socket().detach())
        return numbers[-1]

    with Channel(server, tls=False, connector=connect, options=SOON) as channel:
        assert "is a socket that is not connected" in unavailable(channel)
    for number in numbers:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)


def test_an_exception_of_cancel_is_told_in_its_context(server: str) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    told: List[Any] = []

    class Breaks(Later):
        def cancel(self, connecting: Connecting) -> None:
            raise LookupError

    variable.set("of the channel")
    penstock.set_exception_hook(lambda *about: told.append((*about[:2], type(about[2]), variable.get())))
    try:
        with Channel(server, tls=False, connector=Breaks(), options={"connect_timeout_ms": 30}) as channel:
            assert "has not answered" in contextvars.Context().run(unavailable, channel)
            eventually(lambda: bool(told))
    finally:
        penstock.set_exception_hook(None)
    assert told[0] == ("Breaks", "cancel", LookupError, "of the channel")


def test_asyncio(server: str) -> None:
    async def connect(connecting: Connecting) -> socket.socket:
        family, address = connecting.sockaddr
        made = socket.socket(family)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
        return made

    async def work() -> None:
        async with aio.Channel(server, tls=False, connector=connect) as channel:
            assert await channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"
        async with aio.Channel(server, tls=False, connector=dial) as channel:
            assert await channel.unary_unary("/penstock.Echo/Unary")(b"x") == b"x"

    run_on(asyncio.new_event_loop, work())


def test_asyncio_cancels_what_nobody_waits_for(server: str) -> None:
    ended: List[str] = []

    async def connect(connecting: Connecting) -> socket.socket:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        raise AssertionError

    async def work() -> None:
        async with aio.Channel(server, tls=False, connector=connect, options={"connect_timeout_ms": 30}) as channel:
            with pytest.raises(penstock.RpcError, match="the connector has not answered"):
                await channel.unary_unary("/penstock.Echo/Unary")(b"x")
            await aio_helpers.eventually(lambda: bool(ended))

    run_on(asyncio.new_event_loop, work())
    assert ended[0] == "cancelled"


def test_a_forked_child_asks_anew(server: str) -> None:
    seen: List[int] = []

    def connect(connecting: Connecting) -> socket.socket:
        seen.append(os.getpid())
        return dial(connecting)

    with Channel(server, tls=False, connector=connect) as channel:
        assert unary(channel) == b"x"
        child = os.fork()
        if child == 0:
            os._exit(0 if unary(channel) == b"x" and seen[-1] == os.getpid() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert unary(channel) == b"x"
    assert seen == [os.getpid()]
