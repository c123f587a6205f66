"""The channel and the metadata that the flags describe."""

from __future__ import annotations

import argparse
import base64
import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from .. import Channel, InvalidArgumentError, LibraryError
from .failure import CommandError, wrong

Pairs = List[Tuple[str, Union[str, bytes]]]


def opened(args: argparse.Namespace, interceptors: Iterable[Any] = (), trace: bool = False) -> Channel:
    """The channel to ADDRESS. CommandError: the address or a flag of the connection is wrong, or a file can't be
    read."""
    target, given = settings(args)
    if trace:
        given["options"]["trace"] = {"events": 4096}
    try:
        return Channel(target, interceptors=tuple(interceptors), **given)
    except InvalidArgumentError as error:
        raise wrong(_named(error, args)) from error
    except LibraryError as error:
        raise CommandError(_named(error, args)) from error
    except TypeError as error:
        raise wrong(f"--interceptor: {error}") from error


def settings(args: argparse.Namespace) -> Tuple[str, Dict[str, Any]]:
    """The target of a channel, and its arguments ``tls`` and ``options``."""
    target = f"unix:{args.address}" if args.unix and not args.address.startswith("unix:") else args.address
    return target, {"tls": _tls(args), "options": _options(args)}


# The flags whose values the library checks, by the path of the option that each becomes.
_FLAGS = {
    "$.tls.roots_file": "cacert",
    "$.tls.certificate_chain_file": "cert",
    "$.tls.private_key_file": "key",
    "$.tls.server_name": "servername",
    "$.authority": "authority",
    "$.user_agent": "user_agent",
    "$.http": "http",
    "$.proxy": "proxy",
}


def _named(error: LibraryError, args: argparse.Namespace) -> str:
    """The library's message, with the flag in place of the option."""
    flag = _FLAGS.get(error.path or "")
    if flag is None:
        return error.message
    return f"--{flag.replace('_', '-')} {getattr(args, flag)}: {error.message.replace(f'{error.path}: ', '')}"


def _options(args: argparse.Namespace) -> Dict[str, Any]:
    options: Dict[str, Any] = {
        "protocol": args.protocol,
        "http": args.http,
        "authority": args.authority,
        "proxy": args.proxy,
        "user_agent": args.user_agent,
        "connect_timeout_ms": _ms(args.connect_timeout),
        "keepalive_time_ms": _ms(args.keepalive_time),
        "max_receive_message_bytes": args.max_msg_sz,
    }
    return {name: value for name, value in options.items() if value is not None}


def _ms(seconds: Any) -> Any:
    return None if seconds is None else max(1, round(seconds * 1000))


def _tls(args: argparse.Namespace) -> Union[bool, Mapping[str, Any], None]:
    files = {"roots_file": args.cacert, "certificate_chain_file": args.cert, "private_key_file": args.key}
    chosen: Dict[str, Any] = {**files, "server_name": args.servername, "verify": False if args.insecure else None}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if args.plaintext:
        if chosen:
            raise wrong("--plaintext is given together with --cacert, --cert, --key, --servername or --insecure")
        return False
    if (args.cert is None) != (args.key is None):
        raise wrong("--cert and --key belong together, and only one of them is given")
    return chosen or None


_VARIABLE = re.compile(r"\$\{(\w+)\}")


def metadata(lines: Iterable[str], expand: bool) -> Pairs:
    """The metadata of ``NAME: VALUE`` lines. CommandError: one is not of this form, or names an unset variable."""
    return [_pair(_expanded(line) if expand else line) for line in lines]


def _expanded(line: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise wrong(f"header {line!r}: the environment has no {match[1]}")
        return os.environ[match[1]]

    return _VARIABLE.sub(value, line)


def _pair(line: str) -> Tuple[str, Union[str, bytes]]:
    name, colon, value = line.partition(":")
    name, value = name.strip().lower(), value.strip()
    if not colon or not name:
        raise wrong(f"header {line!r}: expected 'NAME: VALUE'")
    if not name.endswith("-bin"):
        return name, value
    try:
        return name, base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError as error:
        raise wrong(f"header {line!r}: the value of a -bin name is base64 ({error})") from error


def shown_pairs(pairs: Iterable[Tuple[str, Union[str, bytes]]]) -> Dict[str, List[str]]:
    """Metadata as JSON has it: values of -bin names in base64."""
    view: Dict[str, List[str]] = {}
    for name, value in pairs:
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        view.setdefault(name, []).append(text)
    return view


# Advice about failures of connecting, by the library's words for them.
_ADVICE = {
    "the peer does not speak TLS": "for a server without TLS: --plaintext",
    "may want TLS": "for a server with TLS: no --plaintext",
    "self-signed certificate": "for a private authority: --cacert",
    "unable to get local issuer certificate": "for a private authority: --cacert",
    "asked for a client certificate": "its own certificate: --cert and --key",
    "hostname mismatch": "the name in the certificate: --servername",
    "IP address mismatch": "the name in the certificate: --servername",
}


def advice(message: str) -> Optional[str]:
    """Advice about a failure of connecting; None if nothing is known."""
    return next((flag for words, flag in _ADVICE.items() if words in message), None)
