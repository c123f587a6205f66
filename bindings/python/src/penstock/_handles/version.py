"""The versions of the package and of the library that it runs on."""

from __future__ import annotations

from .. import _raw


def package_version() -> str:
    """The version of the installed package, ``"MAJOR.MINOR.PATCH"``, with ``".dev0"`` before its release;
    ``"0+source"`` if the package is not installed."""
    from importlib import metadata

    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:
        return "0+source"


def library_version() -> str:
    """The version of the library, ``"MAJOR.MINOR.PATCH"``, with ``"-dev"`` before its release. Loads the library."""
    version: bytes = _raw.penstock_version()
    return version.decode()
