"""The JSON Schema of all options, from the tables that scripts/options reads from the sources.

Its `$defs` have an object for each function that takes options, and for each object within these. The schema says what the
parser refuses by itself; it can't say what a file or a PEM text has to have in it, or that a name resolves."""

NAME = r"[0-9A-Za-z_.-]+"
LABEL = r"[A-Za-z0-9_-]{1,63}"
# A name of numbers only would be an IPv4 address.
NUMBER = "(0[Xx][0-9A-Fa-f]+|[0-9]+)"
HOST = rf"(?!{NUMBER}(\.{NUMBER})*\.?([:/]|$))({LABEL}\.)*{LABEL}"
# Without leading zeros.
BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"({BYTE}\.){{3}}{BYTE}"
HEX = "[0-9A-Fa-f]{1,4}"
IPV6 = "|".join([f"({HEX}:){{7}}{HEX}", f"({HEX}:){{1,7}}:", f":(:{HEX}){{1,7}}", "::",
                 *(f"({HEX}:){{1,{count}}}(:{HEX}){{1,{7 - count}}}" for count in range(1, 7))])
IPV6 = f"({IPV6})"
PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"


def any_case(word):
    """A pattern for the word in upper and lower case: JSON Schema's patterns have no flags."""
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in word)


RESERVED_NAMES = ("content-type", "connection", "content-length", "host", "keep-alive", "proxy-connection", "te",
                  "transfer-encoding", "upgrade")
RESERVED = f"(?!:|{any_case('grpc-')})(?!({'|'.join(map(any_case, RESERVED_NAMES))})$)"
TEXT = r"([!-~]([ -~]*[!-~])?)?"
CODES = ["CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
         "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
         "DATA_LOSS", "UNAUTHENTICATED"]


def text(pattern):
    return {"type": "string", "pattern": f"^({pattern})$"}


def array(items, **more):
    return {"type": "array", "items": items, **more}


def within(bounds):
    low, high = bounds
    return {"minimum": low} | ({} if high is None else {"maximum": high})


def integer(bounds, most=2**63 - 1):
    low, high = bounds
    return {"type": "integer", "minimum": low, "maximum": most if high is None else high}


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


HEADER = text(NAME)
SERVER_NAME = text(rf"{HOST}\.?|{IPV4}|{IPV6}")
BINARY_NAME = ".-[Bb][Ii][Nn]$"


def values(name):
    return {"anyOf": [ref(name), array(ref(name))]}


FIELDS = {
    "type": "object", "propertyNames": {"pattern": f"^{RESERVED}{NAME}$"},
    "patternProperties": {BINARY_NAME: values("binary_value")}, "additionalProperties": values("text_value"),
}
# Base64 with or without its padding, and several with commas between.
B64 = "[A-Za-z0-9+/]"
ONE = rf"[ \t]*({B64}{{4}})*({B64}{{2}}=?=?|{B64}{{3}}=?)?[ \t]*"
ENCODED = {"type": "object", "properties": {"base64": text(f"{ONE}(,{ONE})*")}, "additionalProperties": False,
           "required": ["base64"]}
TRACE = {"anyOf": [{"type": "boolean"},
                   {"type": "object", "properties": {"events": integer((1, 65536))}, "additionalProperties": False}]}

# The schema of a type, by the function that reads it; it gets the bounds of the row.
KINDS = {
    "bool": lambda _: {"type": "boolean"},
    "string": lambda _: {"type": "string"},
    "ascii": lambda _: text(TEXT),
    "authority": lambda _: text("[!-~]+"),
    "proxy": lambda _: {"anyOf": [{"type": "null"}, {"const": "environment"}, text(
        rf"(http|socks5h?)://([^ @/?#:]+:[^ @/?#]+@)?({HOST}\.?|{IPV4}|\[{IPV6}\])(:({PORT}))?/?")]},
    "hosts": lambda _: array({"anyOf": [
        {"const": "*"}, text(rf"(\*?\.?{HOST}\.?|{IPV4}|\[{IPV6}\])(:({PORT}))?"), text(IPV6),
        text(rf"{IPV4}/([12]?[0-9]|3[0-2])"),
        text(rf"{IPV6}/(1[01][0-9]|12[0-8]|[1-9]?[0-9])")]}),
    "localAddress": lambda _: {"anyOf": [text(IPV4), text(IPV6), {
        "type": "object", "properties": {"ipv4": text(IPV4), "ipv6": text(IPV6)}, "additionalProperties": False,
        "minProperties": 1}]},
    "interface": lambda _: text("[!-.0-9;-~]{1,15}"),
    "triples": lambda _: array(array(integer((-(2**31), 2**31 - 1)), minItems=3, maxItems=3)),
    "labels": lambda _: text(rf"({HOST}|{IPV4})?"),
    "encoding": lambda _: text("[0-9a-z_.-]*"),
    "choice": lambda words: {"enum": words},
    "compression": lambda words: {"enum": words},
    "count": integer, "bytes": integer, "milliseconds": integer, "microseconds": integer, "seed": integer,
    "deadline": lambda bounds: {"anyOf": [{"type": "null"}, integer(bounds, (2**63 - 1) // 1_000_000)]},
    "number": lambda bounds: {"type": "number", **within(bounds)},
    "percent": lambda bounds: {"type": "number", **within(bounds)},
    "code": lambda _: {"anyOf": [{"enum": CODES}, integer((1, 16))]},
    "trace": lambda _: TRACE,
    "credentials": lambda _: {"anyOf": [{"type": "null"}, {**FIELDS, "minProperties": 1}]},
    "headerName": lambda _: HEADER,
    "textHeaderName": lambda _: text(rf"(?!.+-[Bb][Ii][Nn]$){RESERVED}{NAME}"),
    "headerNames": lambda _: array(HEADER),
    "pins": lambda _: array(text("[A-Za-z0-9+/]{43}="), minItems=1),
    "serverNames": lambda _: {"anyOf": [SERVER_NAME, array(SERVER_NAME, minItems=1, maxItems=16)]},
    "spiffeIDs": lambda _: array({**text(r"spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)*"), "maxLength": 2048}, minItems=1),
    "words": lambda _: array(text("[A-Z0-9_-]{1,64}"), minItems=1),
    "readSocketOptions": lambda _: ref("socket_options"),
    "readTLS": lambda _: {"anyOf": [{"type": "boolean"}, ref("tls")]},
    "readServiceConfig": lambda _: ref("service_config"),
    "read": lambda _: FIELDS,
    "readEvents": lambda _: array({"enum": ["start", "send", "half_close", "headers", "receive", "status", "cancel"]}),
    "readBuckets": lambda _: array(integer((1, 86_400_000)), maxItems=64, uniqueItems=True),
    "readResource": lambda _: {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 64},
    "readDelay": lambda _: ref("fault_injection_delay"),
    "readAbort": lambda _: ref("fault_injection_abort"),
    "readHedgeThrottle": lambda _: ref("hedging_throttle"),
    "readCodes": lambda _: array({"anyOf": [{"enum": CODES}, integer((1, 16))]}),
    "readMessage": lambda _: {"type": "string"},
    "path": lambda _: {"type": "string", "minLength": 1},
    "urlPath": lambda _: text('/[!"$-~]*'),
    "readJWT": lambda _: ref("oauth2_jwt"),
}

# The names of the objects, by the titles of the tables.
OBJECTS = {
    "penstock_runtime_new": "runtime", "penstock_channel_new": "channel", '"tls" of a channel': "tls",
    '"socket_options" of a channel': "socket_options",
    "penstock_call_options_new": "call", "penstock_metrics_new": "metrics", "penstock_telemetry_new": "telemetry",
    '"delay" of penstock_ready_fault_injection': "fault_injection_delay",
    '"abort" of penstock_ready_fault_injection': "fault_injection_abort",
    '"throttle" of penstock_ready_hedging': "hedging_throttle", '"jwt" of penstock_ready_oauth2': "oauth2_jwt",
}


def said(key, *values):
    """The condition that the member `key` is there and has one of these values."""
    return {"required": [key], "properties": {key: {"enum": list(values)}}}


def has(*keys):
    return {"anyOf": [{"required": [key]} for key in keys]}


def filled(*keys):
    """The condition that these members are there, and not empty."""
    return {"required": list(keys), "properties": {key: {"minLength": 1} for key in keys}}


def one_of(*keys):
    return {"oneOf": [{"required": [key]} for key in keys]}


SIGNING_KEY = one_of("key_file", "service_account_file")
NO_ISSUER = {"not": {"anyOf": [filled("issuer"), {"required": ["service_account_file"]}]}}
CHAIN, KEY = has("certificate_chain_pem", "certificate_chain_file"), has("private_key_pem", "private_key_file")
TLS13 = {"properties": {"ciphers": {"contains": {"pattern": "^TLS_"}}}}
# The rules about several members of an object.
RULES = {
    "runtime": [{"if": said("mode", "host"), "then": {"properties": {"loops": {"const": 1}}}}],
    "channel": [{"if": {"not": said("protocol", "grpc-web", "grpc-web-text", "connect")},
                 "then": {"properties": {"http": {"not": {"const": "1.1"}}}}}],
    "tls": [{"if": CHAIN, "then": KEY, "else": {"not": KEY}},
            {"if": said("verify", False), "then": {"not": has("spiffe_ids", "crls_pem", "crls_file")}},
            {"if": said("min_version", "1.3"), "then": TLS13},
            *({"not": {"required": [f"{one}_pem", f"{one}_file"]}}
              for one in ("roots", "certificate_chain", "private_key", "crls"))],
    "rate_limit": [{"required": ["rate"]}],
    "token_file": [{"required": ["file"]}],
    "jwt": [SIGNING_KEY, {"if": {"required": ["key_file"]}, "then": filled("issuer")},
            {"anyOf": [filled("audience"), filled("scope")]}],
    "oauth2": [{"required": ["grant", "token_path"]}, {"if": filled("client_secret"), "then": filled("client_id")},
               {"if": said("grant", "client_credentials"), "then": filled("client_id")},
               {"if": said("grant", "refresh_token"), "then": filled("refresh_token")},
               {"if": said("grant", "jwt_bearer"), "then": {"required": ["jwt"]},
                "else": {"not": {"allOf": [{"required": ["jwt"]}, filled("client_secret")]}}},
               {"if": {"required": ["jwt"], "properties": {"jwt": NO_ISSUER}}, "then": filled("client_id")}],
    "oauth2_jwt": [SIGNING_KEY, {"if": {"required": ["key_file"]}, "then": filled("audience")}],
}
# The cipher suites of OpenSSL 3.0 that have forward secrecy and AEAD.
CIPHERS = [f"TLS_{name}" for name in ("AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "AES_128_GCM_SHA256")]
CIPHERS += [f"TLS_AES_128_{name}_SHA256" for name in ("CCM", "CCM_8")]
CIPHERS += [f"{kind}-{name}" for kind in ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA", "DHE-DSS")
            for name in ("AES256-GCM-SHA384", "AES128-GCM-SHA256")]
CIPHERS += [f"{kind}-CHACHA20-POLY1305" for kind in ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA")]
CIPHERS += [f"{kind}-AES{name}" for kind in ("ECDHE-ECDSA", "DHE-RSA") for name in ("256-CCM", "256-CCM8", "128-CCM", "128-CCM8")]
CIPHERS += [f"{kind}-ARIA{name}" for kind in ("ECDHE-ECDSA", "ECDHE", "DHE-RSA", "DHE-DSS")
            for name in ("256-GCM-SHA384", "128-GCM-SHA256")]
# Members whose type says less than what the library checks.
MEMBERS = {
    ("tls", "key_log_file"): {"type": "string", "minLength": 1},
    ("token_file", "file"): {"type": "string", "minLength": 1},
    ("tls", "ciphers"): array({"enum": CIPHERS}, minItems=1),
}

UINT32 = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2**32 - 1}, text("[0-9]{1,9}")]}
PERCENT = {"anyOf": [integer((0, 100)), text("(100|[0-9]{1,2})")]}
DURATION = text(r"[0-9]{1,15}(\.[0-9]{1,9})?s")
LONGER = text(r"(?=.*[1-9])[0-9]{1,15}(\.[0-9]{1,9})?s")


def message(required=(), **fields):
    """A message of protobuf in JSON: a field that is null counts as absent, and unknown fields are ignored."""
    return {"type": "object", "properties": {name: {"anyOf": [{"type": "null"}, one]} for name, one in fields.items()},
            "allOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in required]}


def policies(*more):
    known = {"pick_first": message(shuffleAddressList={"type": "boolean"}), "round_robin": {"type": "object"},
             "weighted_round_robin": {"type": "object"}, "static_weighted_round_robin": {"type": "object"}}
    known |= {name: ref("outlier_detection") for name in more}
    return array({"type": "object", "minProperties": 1, "maxProperties": 1, "properties": known, "additionalProperties": False})


RATE = {"enforcementPercentage": PERCENT, "minimumHosts": UINT32, "requestVolume": UINT32}
SERVICE_CONFIG = {
    "service_config": message(
        loadBalancingConfig=policies("outlier_detection_experimental"),
        loadBalancingPolicy=text("|".join(map(any_case, (
            "pick_first", "round_robin", "weighted_round_robin", "static_weighted_round_robin", "unspecified")))),
        methodConfig=array(ref("method_config")),
        retryThrottling=message(
            ["maxTokens", "tokenRatio"], maxTokens={"anyOf": [integer((1, 1000)), text("(1000|[1-9][0-9]{0,2})")]},
            tokenRatio={"type": "number", "minimum": 0.001}),
        healthCheckConfig=message(serviceName={"type": "string"}),
        connectionScaling=message(maxConnectionsPerSubchannel=UINT32)),
    "method_config": {
        **message(
            name=array({**message(service={"type": "string"}, method={"type": "string"}),
                        "if": {"required": ["method"], "properties": {"method": {"type": "string", "minLength": 1}}},
                        "then": {"required": ["service"], "properties": {"service": {"type": "string", "minLength": 1}}}}),
            waitForReady={"type": "boolean"},
            timeout=DURATION, maxRequestMessageBytes=UINT32, maxResponseMessageBytes=UINT32, retryPolicy=ref("retry_policy")),
        "not": {"allOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                          for name in ("retryPolicy", "hedgingPolicy")]}},
    "retry_policy": message(
        ["maxAttempts", "initialBackoff", "maxBackoff", "backoffMultiplier", "retryableStatusCodes"],
        maxAttempts={"anyOf": [integer((2, 2**32 - 1)), text("([2-9]|[1-9][0-9]{1,8})")]}, initialBackoff=LONGER,
        maxBackoff=LONGER, backoffMultiplier={"type": "number", "exclusiveMinimum": 0},
        retryableStatusCodes=array({"anyOf": [{"enum": ["OK", *CODES]}, integer((0, 16))]}, minItems=1)),
    "outlier_detection": message(
        ["childPolicy"], interval=LONGER, baseEjectionTime=DURATION, maxEjectionTime=DURATION, maxEjectionPercent=PERCENT,
        successRateEjection=message(stdevFactor=UINT32, **RATE), failurePercentageEjection=message(threshold=PERCENT, **RATE),
        childPolicy={**policies(), "minItems": 1}),
}


def name_of(title):
    return OBJECTS.get(title) or title.removeprefix("penstock_ready_")


def member(name, row):
    made = MEMBERS.get((name, row["key"])) or KINDS[row["kind"]](row["bounds"])
    if row["key"].endswith("_pem"):
        made = {**made, "contentMediaType": "application/x-pem-file"}
    return {"description": f'{row["meaning"]} Default: {row["default"]}.', **made}


def schema(tables):
    objects = {
        "text_value": {"anyOf": [text(TEXT), ENCODED]},
        "binary_value": {"anyOf": [text(f"{ONE}(,{ONE})*"), ENCODED]},
    }
    for table in tables:
        name = name_of(table["title"])
        objects[name] = {
            "title": f'The options of {table["title"]}', "type": "object",
            "properties": {row["key"]: member(name, row) for row in table["rows"]}, "additionalProperties": False,
            **({"allOf": RULES[name]} if name in RULES else {}),
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The options of libpenstock",
            "description": "Written by scripts/options. Each of $defs is the schema of a function's options.",
            "$defs": {**objects, **SERVICE_CONFIG}}
