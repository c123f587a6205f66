"""Runs the cases of Tests/interop/client, a C program, on the routes (protocol, HTTP version and server) whose
servers have grpc.testing.TestService."""

import json

import harness

EVERY = ("empty_unary", "large_unary", "client_streaming", "server_streaming", "empty_stream", "custom_metadata",
         "cacheable_unary", "half_duplex", "unread_responses", "many_requests", "many_responses", "deadline_not_reached",
         "echo_any_bytes")
# Cases in which a stream is reset, or is answered before its request has ended.
RESETS = ("unimplemented_method", "unimplemented_service", "cancel_after_begin", "message_limits")
RESETS_FULL = ("status_code_and_message", "special_status_message", "cancel_after_first_response",
               "timeout_on_sleeping_server")
# Only connectrpc reports whether a request was compressed.
COMPRESSED = ("client_compressed_unary", "client_compressed_streaming")
FULL = ("ping_pong", "many_both_ways")
# connectrpc sends no headers before the first message.
GRPCIO = ("headers_first",)
HEAVY = ("unary_1000", "concurrent_large_unary", "channel_soak", "large_compressed")
# Only for servers that allow so many streams on one connection.
THOUSAND = ("streams_1000",)
STYLES = ("blocking", "callback", "host-callback")


class Programs:
    def __init__(self, suite):
        self.suite = suite
        self.program = harness.build_interop_client()

    def run(self, route):
        if not route.can & {"c", "translates"}:
            return
        # Envoy's bridge does not decode gRPC's status messages, and accepts no large messages.
        spoilt = {"special_status_message", "message_limits"} if "bridge" in route.can else set()
        if "up" not in route.can:
            spoilt |= {"half_duplex", "many_both_ways"}
        names = list(EVERY)
        full = "full" in route.can
        for when, more in (("resets" in route.can, RESETS), (full, FULL), (full and "resets" in route.can, RESETS_FULL),
                           (full and "translates" in route.can, GRPCIO),
                           ("resets" in route.can and "translates" not in route.can, COMPRESSED)):
            names += more if when else ()
        # All styles run on the routes that have most cases, and one style on the others.
        for style in STYLES if "heavy" in route.can else STYLES[1:2]:
            more = []
            if "heavy" in route.can and style != "blocking":
                more = [*HEAVY, *(THOUSAND if "thousand" in route.can else ())]
            options = {"protocol": route.protocol, "tls": route.tls or False, **route.options}
            command = [self.program, "--target", route.target, "--style", style, "--channel", json.dumps(options)]
            chosen = [name for name in (*names, *more) if name not in spoilt]
            harness.run_cases(self.suite, f"c {route.name} {style}", command, chosen)
