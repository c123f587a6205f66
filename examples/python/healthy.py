#!/usr/bin/env python3
"""Calls in turn to several servers, but only to those whose health service (grpc.health.v1) says SERVING.

    healthy.py [ADDRESS[,ADDRESS...]]

A server without a health service, such as penstock-peer, counts as serving.
"""

import sys

import penstock

addresses = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051,127.0.0.1:50052"
options = {
    "service_config": {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": ""},  # "": the server as a whole
    }
}

with penstock.Channel(f"ipv4:{addresses}", tls=False, options=options) as channel:
    echo = channel.unary_unary("/penstock.Echo/Unary")
    for _ in range(6):
        try:
            # The call waits until the first server has said that it serves, and fails if all have said that they do not.
            reply, call = echo.with_call(b"hi", timeout=5)
            print(f"{reply.decode()} from {call.stats['peer']}")
        except penstock.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")
