"""The versions of the package and of the library that it runs on."""

from __future__ import annotations

from typing import Any, Dict

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


def library_versions() -> Dict[str, Any]:
    """The versions of the library and of those that it stands on: ``{"version": ..., "libraries": {"openssl":
    {"version": ..., "inside": ...}, "nghttp2": ..., "jansson": ..., "zlib": ...}}``. ``inside`` is true for a library
    that is a part of libpenstock, as in the wheel, so that updates of the system's do not reach it."""
    import json

    from .metadata import owned_text

    versions: Dict[str, Any] = json.loads(owned_text(_raw.penstock_version_json))
    return versions
