"""The results of calls under load: their times and their statuses."""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List, Tuple

from .. import RpcError

_PERCENTILES = (50, 75, 90, 95, 99, 99.9)
_ROWS = 12


class Results:
    """Latencies in milliseconds, in the order in which the calls have ended."""

    def __init__(self) -> None:
        self.began = 0.0
        self._ended = 0.0
        self.latencies: List[float] = []
        # When each call has ended, in seconds since the beginning.
        self.ends: List[float] = []
        self.codes: Dict[str, int] = {}
        # For each status other than OK, the message of the first call that had it.
        self.said: Dict[str, str] = {}

    def begin(self) -> None:
        self.began = time.monotonic()

    def end(self) -> None:
        self._ended = time.monotonic()

    def add(self, since: float, until: float, code: str) -> None:
        """Adds a call, by the times of `time.monotonic`."""
        self.latencies.append((until - since) * 1000)
        self.ends.append(until - self.began)
        self.codes[code] = self.codes.get(code, 0) + 1

    def failed(self, error: RpcError) -> None:
        self.said.setdefault(error.code().name, error.details())

    @property
    def all_ok(self) -> bool:
        return set(self.codes) == {"OK"}

    @property
    def elapsed(self) -> float:
        """Seconds from the beginning to the end, or until now."""
        return (self._ended or time.monotonic()) - self.began

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.latencies) / self.elapsed if self.elapsed > 0 else 0.0

    def percentiles(self) -> Dict[str, float]:
        """Latencies in milliseconds by name: the least, some percentiles, the largest, and the mean."""
        ordered = sorted(self.latencies)
        found = {"least": ordered[0]}
        for percent in _PERCENTILES:
            found[f"p{percent:g}"] = ordered[min(math.ceil(len(ordered) * percent / 100), len(ordered)) - 1]
        return {**found, "largest": ordered[-1], "mean": sum(ordered) / len(ordered)}

    def histogram(self) -> List[Tuple[float, float, int]]:
        """How many latencies are between two bounds, in milliseconds; each range is longer than the one before by the
        same factor."""
        least, largest = max(min(self.latencies), 1e-3), max(max(self.latencies), 2e-3)
        factor = max((largest / least) ** (1 / _ROWS), 1.001)
        counts = [0] * _ROWS
        for latency in self.latencies:
            row = int(math.log(max(latency, least) / least) / math.log(factor))
            counts[min(row, _ROWS - 1)] += 1
        return [(least * factor**row, least * factor ** (row + 1), count) for row, count in enumerate(counts)]

    def rates(self) -> List[Tuple[float, float]]:
        """How the rate went: for up to 60 parts of the time the middle in seconds, and the calls per second that
        ended in it."""
        parts = max(1, min(60, len(self.ends) // 10))
        width = max(self.elapsed / parts, 1e-9)
        counts = [0] * parts
        for end in self.ends:
            counts[min(int(end / width), parts - 1)] += 1
        return [((part + 0.5) * width, count / width) for part, count in enumerate(counts)]

    def view(self) -> Dict[str, Any]:
        """All of it as JSON has it."""
        return {
            "calls": len(self.latencies),
            "seconds": self.elapsed,
            "rate": self.rate,
            "codes": self.codes,
            "messages": self.said,
            "latency_ms": self.percentiles(),
            "histogram": [{"from_ms": low, "to_ms": high, "calls": count} for low, high, count in self.histogram()],
        }
