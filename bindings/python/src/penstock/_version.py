"""The versions of the package and of the library that it runs on."""

from __future__ import annotations

from . import _raw


def package_version() -> str:
    """The version of the installed package, ``"MAJOR.MINOR.PATCH"``, and ``".dev0"`` if it is not finished;
    ``"0+source"`` where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:
        return "0+source"


def library_version() -> str:
    """The version of the library, ``"MAJOR.MINOR.PATCH"``, and ``"-dev"`` if it is not finished; loads it."""
    version: bytes = _raw.penstock_version()
    return version.decode()
