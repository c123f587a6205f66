"""Functions that generated modules import from ``grpc._utilities``."""

from __future__ import annotations


def first_version_is_lower(version1: str, version2: str) -> bool:
    """Whether ``version1`` is lower than ``version2``, each as "1.60.1" or "1.60.1.dev0", of which the second counts
    as higher. False: one is no version."""
    first, second = version1.split("."), version2.split(".")
    try:
        numbers = [[int(part) for part in version[:3]] for version in (first, second)]
    except ValueError:
        return False
    return numbers[0] < numbers[1] if numbers[0] != numbers[1] else len(first) < len(second)
