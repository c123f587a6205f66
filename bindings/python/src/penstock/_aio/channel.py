"""Channels whose calls run on an event loop of asyncio or trio."""

from __future__ import annotations

from typing import Any, Callable, Coroutine, Iterable, List, Mapping, Optional, Union

from .. import _raw
from .._calls.encoding import Codec
from .._calls.keywords import Interceptors
from .._calls.options import CallOptions
from .._channels.base import TLS, BaseChannel
from .._channels.compressor import Compressor
from .._channels.connector import ConnectFunction, Connector
from .._channels.picker import Picker
from .._channels.resolver import Resolver
from .._channels.verifier import Verifier
from .._handles.verdict import Connectivity
from .caller import Caller
from .driver import Group, driver_of, until_woken, wake
from .interceptors import LoopTasks
from .loops import Loop, Waiting, running_loop
from .running import Running


class Channel(BaseChannel, Caller):
    """A target, its connections and its interceptors, for the event loop that is running now: only that loop's thread
    may use the channel. No other thread is needed.

    The arguments are those of `penstock.Channel`, without ``runtime``: the channels of an event loop share a runtime
    of their own. ``async with`` closes the channel at its end. RuntimeError: no event loop is running.
    """

    def __init__(
        self,
        target: str,
        *,
        tls: Optional[TLS] = None,
        options: Optional[Mapping[str, Any]] = None,
        interceptors: Interceptors = (),
        resolver: Optional[Resolver] = None,
        connector: Union[Connector, ConnectFunction, None] = None,
        verifier: Optional[Verifier] = None,
        picker: Optional[Picker] = None,
        codec: Optional[Codec] = None,
        compressors: Iterable[Compressor] = (),
        loop: Optional[Loop] = None,
    ) -> None:
        loop = running_loop() if loop is None else loop
        driver = driver_of(loop)
        self._group = Group(driver, loop)
        self._tasks = LoopTasks(self._group)
        # The waits for a state, which one watch wakes.
        self._watching: List[Waiting] = []
        self._is_watched = False
        super().__init__(
            target,
            tls=tls,
            options=options,
            interceptors=interceptors,
            runtime=driver.runtime,
            resolver=resolver,
            connector=connector,
            verifier=verifier,
            picker=picker,
            codec=codec,
            compressors=compressors,
        )

    @property
    def _begins_tasks(self) -> Callable[[Coroutine[Any, Any, None]], Any]:
        begins: Callable[[Coroutine[Any, Any, None]], Any] = self._group.loop.create_task
        return begins

    def _register(self, options: CallOptions, interceptors: Interceptors) -> None:
        options._tasks = self._tasks
        super()._register(options, interceptors)

    def _begin(self, running: Running, method: bytes, options: CallOptions) -> None:
        running.begin(_raw.penstock_channel_call, self._handle, method, running.kind, options.handle)

    # ---- Connection ----

    async def wait_connectivity(self, state: Connectivity) -> Connectivity:
        """Waits until the channel's state differs from ``state``, and returns the new state. It does not make the
        channel connect."""
        self._group.driver.check()
        while True:
            # If the channel is closed, this raises.
            if not self._is_watched:
                self.watch_connectivity(self._see)
                self._is_watched = True
            now = self.connectivity
            if now != state:
                return now
            await until_woken(self._group.loop, self._watching)

    def _see(self, now: Connectivity) -> bool:
        """Called with each new state, while waits are there."""
        self._is_watched = bool(self._watching) and self._group.driver.is_open
        if self._is_watched:
            wake(self._watching)
        return self._is_watched

    # ---- The end ----

    async def close(self, grace: Optional[float] = None) -> None:
        """Closes the channel: no more calls can be made. Calls that run may go on for ``grace`` seconds (None: not
        at all) and are then ended with CANCELLED. Returns when the last call has ended."""
        if grace is None:
            self._close()
        else:
            self._close_gracefully(grace)
        await self._group.ended()
        self._close()

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<penstock.aio.Channel {self.target!r}>"
