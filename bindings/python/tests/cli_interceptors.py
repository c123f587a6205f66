"""Interceptors for the flag --interceptor."""

from __future__ import annotations

from penstock import Hop, Interceptor, Verdict

TEXT = "no interceptor"


class Mark(Interceptor):
    """One that leaves a mark."""

    def on_start(self, hop: Hop) -> None:
        hop.metadata["x-marked"] = "yes"


class Refuse(Interceptor):
    """One that raises."""

    def on_start(self, hop: Hop) -> None:
        raise ValueError("no calls today")


class Needy(Interceptor):
    """One that can't be made without arguments."""

    def __init__(self, needed: str) -> None:
        self.needed = needed


class Stuck(Interceptor):
    """One that lets no call go on."""

    def on_start(self, hop: Hop) -> Verdict:
        hop.ticket()
        print("Stuck has the call", flush=True)
        return Verdict.PAUSE
