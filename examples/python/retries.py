#!/usr/bin/env python3
"""A channel with a retry policy, by its service config, against a server that fails now and then: what is sent again,
what is not, and how a call tells.

    retries.py [TARGET]
"""

import sys

import penstock
from penstock import StatusCode

SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": "penstock.Echo"}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.05s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    # Each failure takes a token, and with half of them nothing is sent again until calls succeed.
    "retryThrottling": {"maxTokens": 20, "tokenRatio": 0.1},
}


class Flaky(penstock.Interceptor):
    """The peer does not fail by itself. So this interceptor, which sees each attempt, makes the peer (by the header
    x-status) end the first attempts of a call with a code."""

    per_attempt = True

    def __init__(self):
        self.failures, self.code = 0, StatusCode.UNAVAILABLE

    def on_start(self, hop):
        if hop.previous_attempts < self.failures:
            hop.metadata["x-status"] = str(self.code.number)
            hop.metadata["x-message"] = f"failure {hop.previous_attempts + 1}"

    def on_status(self, hop):
        print(f"  attempt {hop.previous_attempts + 1}: {hop.status.code.name}")


flaky = Flaky()
target = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
with penstock.Channel(target, tls=False, options={"service_config": SERVICE_CONFIG}, interceptors=[flaky]) as channel:
    echo = channel.unary_unary("/penstock.Echo/Unary")

    def outcome(what):
        """Makes a call, and gives its code and the number of its attempts. The deadline covers them all."""
        print(f"{what}:")
        try:
            _, call = echo.with_call(b"hi", timeout=10)
        except penstock.RpcError as error:
            call = error
        print(f"  the caller sees {call.code().name} {call.details()!r}, and {call.stats['attempts']} in the statistics")
        return call.code(), call.stats["attempts"]

    seen = [outcome("A server that works")]
    flaky.failures = 2
    seen.append(outcome("A server that fails twice"))
    flaky.failures = 9
    seen.append(outcome("A server that fails on"))
    flaky.code = StatusCode.NOT_FOUND
    seen.append(outcome("An error that is no reason to try again"))

expected = [(StatusCode.OK, 1), (StatusCode.OK, 3), (StatusCode.UNAVAILABLE, 4), (StatusCode.NOT_FOUND, 1)]
if seen != expected:
    sys.exit(f"expected {expected}")
