"""Interceptors for the flag --interceptor."""

from __future__ import annotations

import threading
import time

from penstock import Hop, Interceptor, Verdict, snapshot

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
        threading.Thread(target=self.tell, daemon=True).start()
        return Verdict.PAUSE

    def tell(self) -> None:
        """Prints a line once the callback has returned."""
        while not any(call["holder"] and call["holder"]["state"] == "paused" for call in snapshot()["calls"] or ()):
            time.sleep(0.001)
        print("Stuck has the call", flush=True)
