#!/usr/bin/env python3
"""An interceptor that rejects every call without a role. A rejected call never reaches the network.

    reject.py [TARGET]
"""

import sys

import penstock
from penstock import StatusCode


class CheckRole(penstock.Interceptor):
    def on_start(self, hop):
        if "x-role" not in hop.metadata:
            hop.end(StatusCode.PERMISSION_DENIED, "no x-role")


with penstock.Channel(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051", tls=False) as channel:
    channel.add_interceptor(CheckRole(), priority=100)
    echo = channel.unary_unary("/penstock.Echo/Unary")
    code = StatusCode.OK
    try:
        echo(b"hi", timeout=5)
    except penstock.RpcError as error:
        code = error.code()
        print(error.status_json)
    print(echo(b"hi", timeout=5, metadata={"x-role": "admin"}))

if code is not StatusCode.PERMISSION_DENIED:
    sys.exit("the call was not rejected")
