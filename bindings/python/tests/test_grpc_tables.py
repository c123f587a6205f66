"""Tables of `penstock.grpc`: each option of grpcio with its bounds, targets of this machine, names without a meaning,
and the arguments of its functions."""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any, Dict, List, Optional, Tuple

import grpc
import pytest

import penstock.grpc
from helpers import Only, with_new_grpcio
from penstock import Hop
from penstock.grpc import _credentials, _names, _options, _outcomes, _plugins, _server
from penstock.grpc._credentials import CallSecrets, ChannelSecrets, Plugin
from penstock.grpc._options import channel_options, with_tls_options

pytestmark = with_new_grpcio
DAY = 86_400_000
MOST = 2**31 - 1
# An option of grpcio and its value, and what it becomes.
OPTIONS: List[Tuple[str, Any, Dict[str, Any]]] = [
    *[
        (f"grpc.max_{way}_message_length", given, {f"max_{way}_message_bytes": wanted})
        for way in ("receive", "send")
        for given, wanted in ((-1, MOST), (0, 0), (1, 1), (MOST, MOST), (MOST + 1, MOST), ("7", 7))
    ],
    *[
        (f"grpc.{name}", given, {"max_header_list_bytes": wanted})
        for name in ("max_metadata_size", "absolute_max_metadata_size")
        for given, wanted in ((-1, 1024), (1023, 1024), (1025, 1025), (1_048_575, 1_048_575), (1_048_577, 1_048_576))
    ],
    ("grpc.primary_user_agent", "a", {"user_agent": "a"}),
    ("grpc.secondary_user_agent", b"a", {"user_agent": "a"}),
    ("grpc.primary_user_agent", "", {"user_agent": ""}),
    ("grpc.default_authority", b"a", {"authority": "a"}),
    ("grpc.ssl_target_name_override", "a", {"authority": "a", "server_name": "a"}),
    ("grpc.ssl_session_cache", object(), {"session_resumption": True}),
    ("grpc.ssl_session_cache", None, {"session_resumption": False}),
    ("grpc.keepalive_time_ms", 0, {}),
    ("grpc.keepalive_time_ms", -1, {}),
    ("grpc.keepalive_time_ms", MOST, {}),
    ("grpc.keepalive_time_ms", 1, {"keepalive_time_ms": 1000}),
    ("grpc.keepalive_time_ms", 1001, {"keepalive_time_ms": 1001}),
    ("grpc.keepalive_time_ms", MOST - 1, {"keepalive_time_ms": DAY}),
    ("grpc.keepalive_time_ms", DAY - 1, {"keepalive_time_ms": DAY - 1}),
    ("grpc.keepalive_permit_without_calls", 0, {"keepalive_without_calls": False}),
    ("grpc.keepalive_permit_without_calls", 1, {"keepalive_without_calls": True}),
    *[
        (f"grpc.{name}", given, {option: wanted})
        for name, option in (
            ("keepalive_timeout_ms", "keepalive_timeout_ms"),
            ("initial_reconnect_backoff_ms", "initial_backoff_ms"),
            ("max_reconnect_backoff_ms", "max_backoff_ms"),
            ("min_reconnect_backoff_ms", "connect_timeout_ms"),
        )
        for given, wanted in ((0, 1), (-5, 1), (1, 1), (2, 2), (DAY, DAY), (DAY + 1, DAY))
    ],
    ("grpc.client_idle_timeout_ms", -1, {"idle_timeout_ms": 0}),
    ("grpc.client_idle_timeout_ms", 1, {"idle_timeout_ms": 1}),
    ("grpc.client_idle_timeout_ms", MOST, {"idle_timeout_ms": MOST}),
    ("grpc.client_idle_timeout_ms", 30 * DAY + 1, {"idle_timeout_ms": 30 * DAY}),
    ("grpc.dns_min_time_between_resolutions_ms", -1, {"min_resolve_interval_ms": 0}),
    ("grpc.dns_min_time_between_resolutions_ms", DAY + 1, {"min_resolve_interval_ms": DAY}),
    ("grpc.http2.lookahead_bytes", 65534, {"initial_stream_window_bytes": 65535}),
    ("grpc.http2.lookahead_bytes", 65536, {"initial_stream_window_bytes": 65536}),
    ("grpc.http2.lookahead_bytes", MOST + 1, {"initial_stream_window_bytes": MOST}),
    ("grpc.service_config", '{"a": 1}', {"service_config": {"a": 1}}),
    ("grpc.enable_retries", 0, {"retries": False}),
    ("grpc.enable_retries", 1, {"retries": True}),
    ("grpc.per_rpc_retry_buffer_size", 5, {"replay_bytes": 5}),
    ("grpc.per_rpc_retry_buffer_size", -1, {"replay_bytes": MOST}),
    ("grpc.enable_http_proxy", 0, {"proxy": None}),
    ("grpc.enable_http_proxy", 1, {"proxy": "environment"}),
    ("grpc.http_proxy", b"http://p", {"proxy": "http://p"}),
    ("grpc.lb_policy_name", "round_robin", {"service_config": {"loadBalancingConfig": [{"round_robin": {}}]}}),
    *[
        ("grpc.default_compression_algorithm", number, {"compression": name})
        for number, name in enumerate(("identity", "deflate", "gzip"))
    ],
    *[
        (name, 1, {})
        for name in (
            "grpc.use_local_subchannel_pool",
            "SingleThreadedUnaryStream",
            "grpc.http2.max_pings_without_data",
            "grpc.http2.min_time_between_pings_ms",
            "grpc.http2.min_ping_interval_without_data_ms",
            "grpc.service_config_disable_resolution",
        )
    ],
]


@pytest.mark.parametrize(("name", "value", "chosen"), OPTIONS)
def test_an_option_of_grpcio(name: str, value: Any, chosen: Dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert channel_options([(name, value)], None) == chosen


def test_each_option_is_in_the_table() -> None:
    assert {name for name, _, _ in OPTIONS} == set(_options._MEANINGS)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([("grpc.primary_user_agent", "a"), ("grpc.secondary_user_agent", "b")], {"user_agent": "a b"}),
        ([("grpc.enable_http_proxy", 1), ("grpc.http_proxy", "p")], {"proxy": "p"}),
        ([("grpc.http_proxy", "p"), ("grpc.enable_http_proxy", 1)], {"proxy": "p"}),
        ([("grpc.enable_http_proxy", 0), ("grpc.http_proxy", "p")], {"proxy": None}),
        ([("grpc.http_proxy", "p"), ("grpc.enable_http_proxy", 0)], {"proxy": None}),
        (
            [("grpc.default_authority", "a"), ("grpc.ssl_target_name_override", "b")],
            {"authority": "a", "server_name": "b"},
        ),
        (
            [("grpc.service_config", '{"loadBalancingConfig": [{"x": {}}]}'), ("grpc.lb_policy_name", "y")],
            {"service_config": {"loadBalancingConfig": [{"x": {}}]}},
        ),
        (
            [("grpc.service_config", '{"a": 1, "b": 2}'), ("grpc.service_config", '{"b": 3}')],
            {"service_config": {"a": 1, "b": 3}},
        ),
    ],
)
def test_options_that_belong_together(options: Any, chosen: Dict[str, Any]) -> None:
    assert channel_options(options, None) == chosen


def test_the_compression_of_a_channel() -> None:
    assert channel_options(None, None) == {}
    assert channel_options((), grpc.Compression.Gzip) == {"compression": "gzip"}
    assert channel_options([("grpc.default_compression_algorithm", 1)], grpc.Compression.NoCompression) == {
        "compression": "identity"
    }
    assert _names.compression_name(None) is None
    with pytest.raises(KeyError):
        _names.compression_name(3)  # type: ignore[arg-type]


INSTEAD = {
    "grpc.http2.bdp_probe": "use the option max_window_bytes of penstock.Channel",
    "grpc.http2.max_frame_size": "use nothing: frames have HTTP/2's usual size",
    "grpc.enable_channelz": "use penstock.snapshot()",
    "grpc.unknown": "see docs/options.md for those of penstock.Channel",
}


@pytest.mark.parametrize("name", INSTEAD)
def test_an_option_without_a_meaning(name: str) -> None:
    with pytest.warns(RuntimeWarning) as caught:
        assert channel_options([(name, 1), ("grpc.enable_retries", 1)], None, stacklevel=2) == {"retries": True}
    (warning,) = caught
    assert str(warning.message) == f"the channel option {name!r} has no effect with penstock; {INSTEAD[name]}"
    assert warning.filename == __file__


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_warning_points_to_the_program(is_secure: bool) -> None:
    made, given = penstock.grpc.insecure_channel, ()
    if is_secure:
        made, given = penstock.grpc.secure_channel, (penstock.grpc.ssl_channel_credentials(),)
    with pytest.warns(RuntimeWarning) as caught:
        made("a:1", *given, [("grpc.unknown", 1)]).close()
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("tls", "chosen", "wanted"),
    [
        (False, {"server_name": "a"}, False),
        (True, {}, True),
        (True, {"server_name": "a"}, {"server_name": "a"}),
        ({"roots_pem": b""}, {"session_resumption": True}, {"roots_pem": b"", "session_resumption": True}),
        ({"roots_pem": b""}, {}, {"roots_pem": b""}),
    ],
)
def test_options_of_tls(tls: Any, chosen: Dict[str, Any], wanted: Any) -> None:
    given = {**chosen, "authority": "b"}
    assert with_tls_options(tls, given) == wanted
    assert given == {"authority": "b"}


# ---- Credentials ----


TARGETS: List[Tuple[str, bool, bool]] = [
    ("localhost:1", True, False),
    ("127.0.0.1:1", True, False),
    ("127.9.9.9:1", True, False),
    ("[::1]:1", True, False),
    ("dns:///localhost:1", True, False),
    ("ipv4:127.0.0.1:1", True, False),
    ("ipv6:[::1]:1", True, False),
    ("unix:/a", False, True),
    ("unix-abstract:a", False, True),
    ("unix:localhost:1", False, True),
    ("example.org:1", False, False),
    ("localhost.example.org:1", False, False),
    ("10.0.0.1:1", False, False),
    ("[2001:db8::1]:1", False, False),
    ("dns:///example.org:1", False, False),
]


@pytest.mark.parametrize(("target", "by_tcp", "by_socket"), TARGETS)
def test_targets_of_this_machine(target: str, by_tcp: bool, by_socket: bool) -> None:
    for kind, is_fine in (
        (grpc.LocalConnectionType.LOCAL_TCP, by_tcp),
        (grpc.LocalConnectionType.UDS, by_socket),
        (None, True),
    ):
        secrets = ChannelSecrets(False, kind)
        if is_fine:
            _credentials.check_local(target, secrets)
        else:
            with pytest.raises(ValueError, match=r"^local_channel_credentials\(") as caught:
                _credentials.check_local(target, secrets)
            assert str(caught.value) == f"local_channel_credentials({kind}) are not for the target {target!r}"


def test_whether_a_channel_protects_credentials() -> None:
    local = grpc.LocalConnectionType.LOCAL_TCP
    kinds = [(True, None), ({"roots_pem": b""}, None), (False, local), (False, None)]
    assert [ChannelSecrets(*each).protects for each in kinds] == [True, True, True, False]


def test_parts_of_the_credentials_of_tls() -> None:
    make = penstock.grpc.ssl_channel_credentials
    for given, tls in (
        ((), True),
        ((b"r",), {"roots_pem": b"r"}),
        ((None, b"k", b"c"), {"private_key_pem": b"k", "certificate_chain_pem": b"c"}),
        ((b"r", b"k", b"c"), {"roots_pem": b"r", "private_key_pem": b"k", "certificate_chain_pem": b"c"}),
    ):
        assert make(*given)._credentials == ChannelSecrets(tls)


def plugins_of(credentials: Any) -> List[Any]:
    return [each.plugin for each in credentials._credentials.plugins]


def test_credentials_are_put_together_in_order() -> None:
    made = [penstock.grpc.metadata_call_credentials(str(number)) for number in range(4)]
    first = penstock.grpc.composite_call_credentials(made[0], made[1])
    assert plugins_of(first) == ["0", "1"]
    channel = penstock.grpc.composite_channel_credentials(penstock.grpc.ssl_channel_credentials(), first)
    assert channel._credentials.tls is True
    assert plugins_of(penstock.grpc.composite_channel_credentials(channel, made[2], made[3])) == ["0", "1", "2", "3"]
    assert _credentials.call_secrets(None) == ()


@pytest.mark.parametrize("read", [_credentials.channel_secrets, _credentials.call_secrets])
def test_credentials_that_are_not_ours(read: Any) -> None:
    theirs = grpc.ssl_channel_credentials()
    with pytest.raises(TypeError) as caught:
        read(theirs)
    assert str(caught.value) == f"credentials of grpcio can't be read: make them by penstock.grpc, not {theirs!r}"
    with pytest.raises(AttributeError):
        read("secret")


NOTHING = {
    "alts_channel_credentials": "ALTS exists only within Google's cloud",
    "xds_channel_credentials": "there is no xDS; use ssl_channel_credentials",
    "compute_engine_channel_credentials": "use composite_channel_credentials with ssl_channel_credentials",
}


@pytest.mark.parametrize("name", NOTHING)
def test_credentials_that_are_not_available(name: str) -> None:
    make = getattr(penstock.grpc, name)
    assert (make.__name__, make.__doc__) == (name, f"Not available: {NOTHING[name]}.")
    with pytest.raises(NotImplementedError) as caught:
        make(None, key=1)
    assert str(caught.value) == f"{name} is not available in penstock.grpc: {NOTHING[name]}"


def test_names_of_servers() -> None:
    functions = {name: made for name, made in _server.NAMES.items() if not isinstance(made, type)}
    assert len(functions) == 16
    for name, make in functions.items():
        assert make.__name__ == name
        with pytest.raises(NotImplementedError) as caught:
            make(1, a=2)
        assert str(caught.value) == f"grpc.{name} needs grpcio: penstock has no server"
    assert all(made.__name__ == name for name, made in _server.NAMES.items())


@pytest.mark.parametrize(
    ("authority", "target", "url"),
    [
        (None, "a:1", "https://a:1"),
        (None, "a:443", "https://a"),
        (None, "dns:///a:443", "https://a"),
        ("b", "a:443", "https://b"),
        ("b:443", "a:1", "https://b"),
        (None, "a:4430", "https://a:4430"),
    ],
)
def test_the_url_of_a_service(authority: Optional[str], target: str, url: str) -> None:
    assert _plugins.url_of(authority, target) == url


def test_the_question_to_a_plugin() -> None:
    secrets = ChannelSecrets(True)
    assert _plugins.authentication(secrets, None, "https://a", "/p.S/M") is None
    credentials = penstock.grpc.metadata_call_credentials("plugin")
    asked = _plugins.authentication(secrets, credentials, "https://a", "/p.S/M")
    assert asked is not None
    assert (asked.context.service_url, asked.context.method_name) == ("https://a/p.S", "M")
    assert [each.plugin for each in asked.plugins] == ["plugin"]
    with pytest.raises(_plugins.Unprotected):
        _plugins.authentication(ChannelSecrets(False), credentials, "https://a", "/p.S/M")
    assert _plugins.authentication(ChannelSecrets(False), None, "https://a", "/p.S/M") is None
    both = _plugins.authentication(
        ChannelSecrets(True, plugins=(Plugin("of the channel", None),)),  # type: ignore[arg-type]
        credentials,
        "https://a",
        "/p.S/M",
    )
    assert both is not None
    assert [each.plugin for each in both.plugins] == ["of the channel", "plugin"]
    assert isinstance(credentials._credentials, CallSecrets)


FAILED = "Getting metadata from plugin failed with error: "


@pytest.mark.parametrize(
    ("answer", "said", "is_logged"),
    [
        (lambda callback: callback(None, LookupError("no token")), "no token", False),
        (lambda callback: int("x"), "invalid literal for int() with base 10: 'x'", True),
        (lambda callback: callback([("Bad", "x")], None), "Illegal metadata", False),
        (lambda callback: callback([("a", 1)], None), "Expected str, not <class 'int'>", False),
        (lambda callback: callback(5, None), "'int' object is not iterable", False),
    ],
)
def test_the_words_of_a_plugin_that_fails(
    server: str, answer: Any, said: str, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(grpc.AuthMetadataPlugin):  # type: ignore[misc]
        def __call__(self, context: Any, callback: Any) -> None:
            answer(callback)

    local = penstock.grpc.local_channel_credentials()
    with penstock.grpc.secure_channel(server, local) as channel:
        call = channel.unary_unary("/penstock.Echo/Unary")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", credentials=penstock.grpc.metadata_call_credentials(Fails()))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == FAILED + said
        assert said in str(caught.value.__cause__ or "Illegal metadata")
    assert [record.levelno for record in caplog.records] == ([logging.ERROR] if is_logged else [])


def test_the_words_of_an_outcome() -> None:
    outcome = _outcomes.Outcome(grpc.StatusCode.ABORTED, "no", debug="for logs")
    assert _outcomes.text_of("C", outcome) == (
        '<C of RPC that terminated with:\n\tstatus = StatusCode.ABORTED\n\tdetails = "no"\n'
        '\tdebug_error_string = "for logs"\n>'
    )
    fine = _outcomes.Outcome(grpc.StatusCode.OK, "")
    assert _outcomes.text_of("C", fine) == (
        '<C of RPC that terminated with:\n\tstatus = StatusCode.OK\n\tdetails = ""\n>'
    )
    assert _outcomes.text_of("C", None) == "<C object>"


# ---- Methods ----


def test_the_arguments_of_each_function(server: str) -> None:
    seen: List[Any] = []

    def look(hop: Hop) -> None:
        seen.append((hop.method, hop.metadata.get("a"), hop.deadline is None, hop.wait_for_ready, hop.compression))

    given: Tuple[Any, ...] = (600, (("a", "1"),), None, True, grpc.Compression.Gzip)
    with penstock.grpc.insecure_channel(server) as channel:
        channel.add_interceptor(Only(on_start=look))
        # A name may lack its slash, and may be bytes.
        unary = channel.unary_unary("penstock.Echo/Unary")
        upload = channel.stream_unary(b"/penstock.Echo/ClientStream")
        download = channel.unary_stream("/penstock.Echo/ServerStream")
        both = channel.stream_stream("/penstock.Echo/Bidi")
        for arguments in (given, ()):
            assert unary(b"x", *arguments) == b"x"
            assert unary.with_call(b"x", *arguments)[0] == b"x"
            assert unary.future(b"x", *arguments).result() == b"x"
            assert list(download(b"x", *arguments)) == [b"x"]
            assert upload(iter([b"x"]), *arguments) == b"x"
            assert upload.with_call(iter([b"x"]), *arguments)[0] == b"x"
            assert upload.future(iter([b"x"]), *arguments).result() == b"x"
            assert list(both(iter([b"x"]), *arguments)) == [b"x"]
    methods = ["Unary"] * 3 + ["ServerStream"] + ["ClientStream"] * 3 + ["Bidi"]
    assert seen == [
        *((f"/penstock.Echo/{name}", "1", False, True, "gzip") for name in methods),
        *((f"/penstock.Echo/{name}", None, True, False, "identity") for name in methods),
    ]


def test_requests_of_a_wrong_type(server: str) -> None:
    with penstock.grpc.insecure_channel(server) as channel:
        unary = channel.unary_unary("/penstock.Echo/Unary")
        with pytest.raises(TypeError, match=r"^Argument 'message' has incorrect type \(expected bytes, got str\)$"):
            unary("x")
        with pytest.raises(grpc.RpcError) as caught:
            unary(None)
        assert (caught.value.code(), caught.value.details()) == (
            grpc.StatusCode.INTERNAL,
            "Exception serializing request!",
        )
        with pytest.raises(grpc.RpcError) as caught:
            unary(b"x", metadata=(("Bad", "x"),))
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INTERNAL, "Invalid metadata")
        refused = unary.future(b"x", metadata=(("Bad", "x"),))
        assert (refused.code(), refused.details(), refused.debug_error_string()) == (
            *(grpc.StatusCode.INTERNAL, "Invalid metadata"),
            "",
        )
        token = penstock.grpc.access_token_call_credentials("x")
        for call in (unary.future(b"x", credentials=token), channel.unary_stream("/a/b")(b"x", credentials=token)):
            assert (call.code(), call.details()) == (grpc.StatusCode.UNAUTHENTICATED, _outcomes._INSECURE)
        none = channel.unary_unary("/penstock.Echo/Unary", None, lambda data: None)
        with pytest.raises(grpc.RpcError) as caught:
            none(b"x")
        assert caught.value.details() == "Exception deserializing response!"
        assert "has returned None" in str(caught.value.__cause__)
        with pytest.raises(TypeError, match=r"^interceptors of grpcio have no filters: methods, kinds$"):
            channel.add_interceptor(Tag(), methods=None, kinds=None)
        assert json.dumps(channel.penstock.target) == json.dumps(server)
    for call in (lambda: unary(b"x"), lambda: unary.with_call(b"x")):
        with pytest.raises(ValueError, match=r"^Cannot invoke RPC on closed channel!$"):
            call()
    with pytest.raises(ValueError, match=r"^Cannot invoke RPC: Channel closed!$"):
        unary.future(b"x")


class Tag(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details, request)
