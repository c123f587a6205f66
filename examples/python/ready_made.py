#!/usr/bin/env python3
"""The ready-made interceptors except the bearer token: header rules, trace context, logging, metrics, response cache,
rate limit, fault injection.

    ready_made.py [TARGET]
"""

import sys

import penstock
from penstock import StatusCode, ready

metadata = {"x-echo-metadata": "1"}

with penstock.Channel(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051", tls=False) as channel:
    echo = channel.unary_unary("/penstock.Echo/Unary")

    def code(request=b"x"):
        try:
            echo(request, metadata=metadata)
        except penstock.RpcError as error:
            return error.code()
        return StatusCode.OK

    # The metrics are above all other interceptors, so that they count calls as their callers see them.
    metrics = ready.Metrics(buckets=[0.01, 0.1, 1])
    channel.add_interceptor(metrics, priority=1000)

    print("Header rules and a trace; the log is below them, and sees the result:")
    channel.add_interceptor(ready.HeaderRules(request=[("set", "x-team", "blue")]), priority=90)
    channel.add_interceptor(ready.TraceContext(sampled=50), priority=80)
    log = channel.add_interceptor(ready.Logging(print, events=["start", "status"]), priority=-100)
    _, call = echo.with_call(b"hello", metadata=metadata)
    print("traceparent:", ready.TraceContext.of(call))
    assert call.trailing_metadata().get("seen-x-team") == "blue"
    log.remove()

    print("A cache, for one method:")
    cache = channel.add_interceptor(ready.ResponseCache(ttl=60), priority=10, methods="/penstock.Echo/Unary")
    answered = [ready.ResponseCache.answered(echo.with_call(b"the same")[1]) for _ in range(2)]
    print(answered)
    assert answered == [False, True]
    cache.remove()

    print("A rate limit without a queue:")
    limit = channel.add_interceptor(ready.RateLimit(1, burst=2, max_waiting=0))
    codes = [code() for _ in range(3)]
    print([code.name for code in codes])
    assert codes == [StatusCode.OK, StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED]
    limit.remove()

    print("Faults:")
    channel.add_interceptor(ready.FaultInjection(delay=0.01, abort=StatusCode.DATA_LOSS))
    assert code() == StatusCode.DATA_LOSS
    print(code().name)

    print("What was counted:")
    print("\n".join(line for line in metrics.prometheus().splitlines() if line.startswith("grpc_client_handled_total")))
