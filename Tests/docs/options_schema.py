"""Checks docs/options.schema.json against the parser, both ways: `options_schema.py FOLDER`, with PENSTOCK_LIBRARY set.

Each member of each object of options gets each value of a pool: those at and beyond each bound that the schema has, words,
names, texts and JSON of each type. The parser has to take exactly the values that the schema allows, and its error names the
member's path. Then random objects of several members, rules between members, and members that do not exist. FOLDER is an
empty one, for certificates. Prints each difference; ends with the number of the values that were compared."""

import ctypes
import json
import os
import pathlib
import random
import subprocess
import sys

import jsonschema
import penstock
from penstock import _raw
from penstock._raw import c_types
from penstock._raw import constants as c

ROOT = pathlib.Path(__file__).resolve().parents[2]
penstock.load(os.environ["PENSTOCK_LIBRARY"])
SCHEMA = json.loads((ROOT / "docs/options.schema.json").read_text())
OBJECTS = SCHEMA["$defs"]
UNLIMITED = 10**9


def certificates(folder):
    """A certificate and its key, as files and as texts."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-subj", "/CN=x", "-days", "2"]
    subprocess.run([*command, "-keyout", "key.pem", "-out", "chain.pem"], cwd=folder, check=True, capture_output=True)
    (folder / "index").write_text("")
    (folder / "settings").write_text("[ca]\ndefault_ca = own\n[own]\ndatabase = index\ndefault_md = sha256\n")
    listing = ["openssl", "ca", "-gencrl", "-config", "settings", "-cert", "chain.pem", "-keyfile", "key.pem"]
    subprocess.run([*listing, "-crldays", "2", "-out", "crl.pem"], cwd=folder, check=True, capture_output=True)
    files = {name: str(folder / f"{name}.pem") for name in ("chain", "key", "crl")}
    return files, {name: pathlib.Path(path).read_text() for name, path in files.items()}


# ---- The parser ----


def handle(function, release, *before):
    """Calls a function that makes an object of options, and releases the object."""
    def parse(text, error):
        made = ctypes.c_void_p()
        result = getattr(_raw, function)(*before, text, ctypes.byref(made), ctypes.byref(error))
        getattr(_raw, release)(made)
        return result
    return parse


def ready(function, *between):
    """Calls a function that fills the table of a ready-made interceptor; the finalizer frees what the table has."""
    def parse(text, error):
        table = c_types.penstock_interceptor()
        ctypes.memset(ctypes.byref(table), 0, ctypes.sizeof(table))
        table.struct_size = ctypes.sizeof(table)
        result = getattr(_raw, function)(text, *between, ctypes.byref(table), ctypes.byref(error))
        if result == c.OK and table.finalizer:
            table.finalizer(table.user_data)
        return result
    return parse


def parsers():
    functions = {
        "runtime": handle("penstock_runtime_new", "penstock_runtime_release"),
        "channel": handle("penstock_channel_new", "penstock_channel_release", b"localhost:1"),
        "call": handle("penstock_call_options_new", "penstock_call_options_release"),
        "telemetry": handle("penstock_telemetry_new", "penstock_telemetry_release"),
        "metrics": handle("penstock_metrics_new", "penstock_metrics_release"),
    }
    signatures = {"bearer_token": 3, "logging": 3}
    server = ctypes.c_void_p()
    _raw.penstock_channel_new(b"localhost:1", None, ctypes.byref(server), None)
    kept.append(server)
    for name in OBJECTS:
        if name not in functions and hasattr(_raw, f"penstock_ready_{name}"):
            # Hedging takes a channel, which may be NULL, and OAuth one that may not.
            channels = {"hedging": (None,), "oauth2": (server,)}
            between = channels.get(name) or callbacks(name, signatures.get(name, 0))
            functions[name] = ready(f"penstock_ready_{name}", *between)
    return functions


def callbacks(name, count):
    """A function that is never called, with neither user data nor a finalizer."""
    if count == 0:
        return ()
    kinds = getattr(_raw, f"penstock_ready_{name}").argtypes[1:4]
    empty = [kind() if issubclass(kind, ctypes._CFuncPtr) else None for kind in kinds]
    never = kinds[0](lambda *_: 0)
    kept.append(never)
    return (never, *empty[1:])


kept = []
PARSERS = parsers()


def parsed(function, options):
    """Whether the parser takes the options, and otherwise the path and the words of its error."""
    error = ctypes.c_void_p()
    result = PARSERS[function](json.dumps(options).encode(), error)
    if result in (c.OK, c.E_UNSUPPORTED):  # a system without libzstd
        if error.value:
            _raw.penstock_error_release(error)
        return True, None, ""
    view = json.loads(_raw.penstock_error_json(error))
    words = _raw.penstock_error_message(error).decode()
    _raw.penstock_error_release(error)
    return False, view.get("path"), words


# ---- The objects ----

RETRY = {"maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "2s", "backoffMultiplier": 2, "retryableStatusCodes": [14]}
JWT = {"key_file": "/key", "issuer": "me", "audience": "you"}
OAUTH2 = {"grant": "client_credentials", "token_path": "/token", "client_id": "me"}
CHILD = {"childPolicy": [{"round_robin": {}}]}


def within(name, value):
    """The function, its options and the path of an object that stands within others."""
    if name == "tls":
        return "channel", {"tls": value}, "$.tls"
    if name == "socket_options":
        return "channel", {"tls": False, "socket_options": value}, "$.socket_options"
    if name == "service_config":
        return "channel", {"tls": False, "service_config": value}, "$.service_config"
    if name == "method_config":
        function, options, path = within("service_config", {"methodConfig": [value]})
        return function, options, f"{path}.methodConfig[0]"
    if name == "retry_policy":
        function, options, path = within("method_config", {"retryPolicy": value})
        return function, options, f"{path}.retryPolicy"
    if name == "outlier_detection":
        policy = "outlier_detection_experimental"
        function, options, path = within("service_config", {"loadBalancingConfig": [{policy: value}]})
        return function, options, f"{path}.loadBalancingConfig[0].{policy}"
    for part in ("delay", "abort"):
        if name == f"fault_injection_{part}":
            return "fault_injection", {part: value}, f"$.{part}"
    if name == "hedging_throttle":
        return "hedging", {"throttle": value}, "$.throttle"
    if name == "oauth2_jwt":
        return "oauth2", {**OAUTH2, "grant": "jwt_bearer", "jwt": value}, "$.jwt"
    return name, value, "$"


def bases(files):
    """Members that an object needs, or that make it quick to parse."""
    return {"tls": {"roots_file": files["chain"]}, "channel": {"tls": False}, "rate_limit": {"rate": 1},
            "token_file": {"file": "/token"}, "jwt": JWT, "oauth2": OAUTH2, "oauth2_jwt": JWT, "retry_policy": RETRY,
            "outlier_detection": CHILD}


# ---- The values ----

WORDS = [
    "", "x", "X", "json", "a b", " a", "a ", "a\u00e9", "\u0007", "localhost", "localhost:80", "a..b", ".a", "*.a.b", "a_b",
    "a/b", "127.0.0.1", "127.0.0.01", "127.1", "eth0",
    "10.0.0.0/8", "10.0.0.0/33", "10.0.0.1:0", "10.0.0.1:65536", "::1", "fe80::1/64", "*", "[::1]",
    "http://proxy:3128", "http://user:word@proxy", "socks5://proxy/", "socks5h://127.0.0.1:1", "ftp://proxy", "http://",
    "http://proxy/path", "http://proxy:0", "/token?a=b", "/token#a",
    "environment", "_grpc._tcp", "authorization", "Authorization", "x-bin", "grpc-timeout",
    "te", ":path", "content-type", "A" * 43 + "=", "A" * 44, "*" * 44, "spiffe://a", "spiffe://a/b", "spiffe://A", "spiffe://a/",
    "spiffe://a//b", "spiffe://", "TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ecdhe", "1s", "0s", "1.5s",
    "1.0000000001s", "1", "s", "-1s", "0", "5", "101", "1001", "UNAVAILABLE", "OK", "unavailable", "ROUND_ROBIN", "unspecified",
]
BASE64 = {"base64": "eA=="}
OTHERS = [
    None, True, False, -1, 0, 1, 2, 16, 17, 0.5, -0.5, 1.5, 1e300, [], {}, [None], [1], [[]], [5, 10], [0], ["start"],
    ["stop"], {"events": 1}, {"events": 0}, {"events": 65536}, {"events": 65537}, {"event": 1}, {"x": "y"}, {"X": ["y", "z"]},
    {"x": 1}, {"x": [1]}, {"a b": "c"}, {"te": "x"}, {"x-bin": "AAA="}, {"x": BASE64}, {"x": {"base65": ""}}, {":path": "/"},
    [{"round_robin": {}}], [{"pick_first": {"shuffleAddressList": True}}], [{"pick_first": {"shuffleAddressList": 1}}],
    [{"round_robin": []}],
    [{}], [{"round_robin": {}, "pick_first": {}}], [CHILD], [{"name": [{}]}], [{"name": 1}],
    CHILD, {"ms": 5}, {"ms": -1}, {"code": "OK"}, {"code": 14}, {"percent": 100.5}, RETRY, {**RETRY, "maxAttempts": 1},
    {"maxTokens": 10},
    {"maxTokens": 10, "tokenRatio": 0.1}, {"maxTokens": 1001, "tokenRatio": 0.1}, {"serviceName": "x"}, {"serviceName": None},
    {"maxConnectionsPerSubchannel": "5"}, {"stdevFactor": 5}, {"enforcementPercentage": 101}, {"threshold": "85"},
    {"ipv4": "127.0.0.2", "ipv6": "::1"}, {"ipv4": "::1"}, {"ipv6": "127.0.0.2"}, {"ipv4": 1}, [[1, 2, 3]], [[1, 2]],
    [[1, 2, 3, 4]], [[-(2**31), 0, 2**31 - 1]], [[0, 0, 2**31]], [["1", 2, 3]], {"tcp_nodelay": False}, {"tcp_nodelay": 1},
    {"traffic_class": 256},
    JWT, {"service_account_file": "/account"}, {"key_file": "/key", "audience": ""},
    {"roots_pem": 1}, {"verify": "no"}, {"retryPolicy": RETRY}, {"methodConfig": [{"timeout": "1"}]},
]


def bounds(node):
    """All bounds and words of the schema."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("minimum", "maximum", "exclusiveMinimum"):
                yield value
            elif key in ("enum", "const"):
                yield from value if isinstance(value, list) else [value]
            else:
                yield from bounds(value)
    elif isinstance(node, list):
        for value in node:
            yield from bounds(value)


def pool():
    values = list(OTHERS)
    for bound in bounds(SCHEMA):
        values += [bound - 1, bound, bound + 1] if isinstance(bound, int) and not isinstance(bound, bool) else [bound]
    words = list(dict.fromkeys([*WORDS, *(one for one in values if isinstance(one, str))]))
    values += words + [[word] for word in words] + [[word, "x"] for word in WORDS] + [{word: "x"} for word in WORDS]
    # Beyond 64 bits JSON's parser has no integers, and a whole number with a fraction is none for it.
    fits = [one for one in values if not isinstance(one, int) or -(2**63) <= one < 2**63]
    return list({json.dumps(one): one for one in fits}.values())


# ---- The comparison ----


class Comparison:
    def __init__(self, files, texts):
        self.bases = bases(files)
        sources = {"roots": "chain", "certificate_chain": "chain", "private_key": "key", "crls": "crl"}
        self.content = {"key_log_file": files["key"] + ".log", "key_file": "/key", "service_account_file": "/account"}
        for option, name in sources.items():
            self.content |= {f"{option}_file": files[name], f"{option}_pem": texts[name]}
        self.compared, self.found = 0, 0
        self.validators = {name: jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"}) for name in OBJECTS}
        self.good = {}

    def compare(self, name, value, member=None):
        """Compares the verdicts on an object; gives the schema's."""
        allowed = self.validators[name].is_valid(value)
        function, options, path = within(name, value)
        taken, where, words = parsed(function, options)
        self.compared += 1
        wanted = path if member is None else f"{path}.{member}"
        named = taken or where is not None and (where.startswith(wanted) or wanted.startswith(where))
        if allowed != taken or not named:
            self.found += 1
            if self.found <= 40:
                verdict = "allows" if allowed else "refuses"
                print(f"{name}: the schema {verdict} {json.dumps(value)[:200]}, the parser says {words!r} at {where}")
        return allowed

    def members(self, name, values):
        for member in OBJECTS[name]["properties"]:
            base = {one: value for one, value in self.bases.get(name, {}).items() if (member, one) not in EXCLUSIVE}
            if member.endswith(("_pem", "_file")):
                values_here = [one for one in values if not isinstance(one, str)] + self.known(member)
            else:
                values_here = values
            good = []
            for value in values_here:
                if self.compare(name, {**base, **self.partner(member), member: value}, member):
                    good.append(value)
            self.good[name, member] = good
            if not good:
                print(f"{name}: no value of the pool fits {member}")
                self.found += 1

    def known(self, member):
        return [self.content[member]] if member in self.content else []

    def partner(self, member):
        """The certificate of a key, and the key of a certificate."""
        others = {"certificate_chain": "private_key_file", "private_key": "certificate_chain_file"}
        other = others.get(member.rpartition("_")[0])
        return {other: self.content[other]} if other else {}

    def together(self, name, seed):
        """Random objects of several members, some with one that does not exist."""
        drawn = random.Random(f"{seed} {name}")
        names = [one for one in OBJECTS[name]["properties"] if self.good[name, one] and not one.endswith(("_pem", "_file"))]
        for _ in range(200):
            chosen = drawn.sample(names, min(len(names), drawn.randint(1, 6)))
            value = {**self.bases.get(name, {}), **{one: drawn.choice(self.good[name, one]) for one in chosen}}
            if drawn.random() < 0.2:
                value["no_such_option"] = 1
            self.compare(name, value)


PAIRS = [(f"{one}_pem", f"{one}_file") for one in ("roots", "certificate_chain", "private_key", "crls")]
EXCLUSIVE = [*PAIRS, ("service_account_file", "key_file")]


def rules(comparison, files):
    """The rules between members, which random objects meet too seldom."""
    chain, key = {"certificate_chain_file": files["chain"]}, {"private_key_file": files["key"]}
    old, new = "ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"
    for name, value in [
        ("channel", {"http": "1.1", "tls": False}), ("channel", {"http": "1.1", "protocol": "grpc"}),
        ("channel", {"http": "1.1", "protocol": "connect", "tls": False}), ("runtime", {"mode": "host", "loops": 2}),
        ("runtime", {"mode": "host", "loops": 1}), ("rate_limit", {}), ("rate_limit", {"burst": 1}), ("token_file", {}),
        *(("jwt", {one: text for one, text in JWT.items() if one != left}) for left in JWT), ("jwt", {}),
        ("jwt", {**JWT, "service_account_file": "/account"}), ("jwt", {"service_account_file": "/account"}),
        ("jwt", {"service_account_file": "/account", "scope": "x"}),
        *(("oauth2", {one: text for one, text in OAUTH2.items() if one != left}) for left in OAUTH2), ("oauth2", {}),
        *(("oauth2", {**OAUTH2, "grant": grant, **more}) for grant in ("client_credentials", "refresh_token", "jwt_bearer")
          for more in ({}, {"refresh_token": "x"}, {"jwt": JWT}, {"jwt": JWT, "client_secret": "x"}, {"client_id": ""},
                       {"client_id": "", "jwt": JWT}, {"client_id": "", "jwt": {"key_file": "/key", "audience": "you"}})),
        *(("tls", {"verify": False, "server_name": ["a.b"] * count}) for count in (0, 1, 16, 17)),
        *(("tls", {"verify": False, "server_name": ["a", one]}) for one in ("10.0.0.1", "::1", "a.b.", "*.b", ".b", "", 1, None)),
        ("tls", {**chain, "verify": False}), ("tls", {**key, "verify": False}), ("tls", {**chain, **key, "verify": False}),
        ("tls", {"verify": False, "spiffe_ids": ["spiffe://a"]}), ("tls", {"verify": False, "spki_pins": ["A" * 43 + "="]}),
        ("tls", {"verify": False, "min_version": "1.3", "ciphers": [old]}),
        ("tls", {"verify": False, "min_version": "1.3", "ciphers": [old, new]}),
        *(("tls", {**chain, **key, one: comparison.content[one], other: comparison.content[other]}) for one, other in PAIRS),
        ("method_config", {"retryPolicy": RETRY, "hedgingPolicy": {}}), ("method_config", {"retryPolicy": RETRY}),
        ("method_config", {"name": [{"method": "x"}]}), ("outlier_detection", {}), ("retry_policy", {}),
    ]:
        comparison.compare(name, value)


def main():
    folder, seed = pathlib.Path(sys.argv[1]), os.environ.get("PENSTOCK_SEED", str(random.randrange(UNLIMITED)))
    files, texts = certificates(folder)
    comparison, values = Comparison(files, texts), pool()
    objects = [name for name in OBJECTS if OBJECTS[name].get("properties")]
    for name in objects:
        if within(name, {})[0] in PARSERS:
            comparison.members(name, values)
            comparison.together(name, seed)
        else:
            print(f"{name}: there is no function for it")
            comparison.found += 1
    rules(comparison, files)
    print(f"{comparison.compared} values compared, {comparison.found} differences, seed {seed}")
    return 1 if comparison.found else 0


if __name__ == "__main__":
    sys.exit(main())
