#!/usr/bin/env python3
"""An interceptor that answers calls itself: a stub for tests. Nothing is sent; no server has to run.

    stub.py
"""

import sys

import penstock
from penstock import StatusCode, Verdict


class Stub(penstock.Interceptor):
    """The verdict TAKE makes this hop answer the call in place of a server. It gets the caller's messages and
    half-close; by returning None it accepts them, and they go no further."""

    def __init__(self, answers):
        self.answers = answers

    def create(self, hop):
        return []  # hop.state: the messages that this call has sent

    def on_start(self, hop):
        return Verdict.TAKE

    def on_send(self, hop):
        hop.state.append(hop.message)

    def on_half_close(self, hop):
        # The request is complete. A message may be delivered because a unary caller has asked for one.
        hop.deliver_headers({"x-stub": "yes"})
        hop.deliver_message(self.answers[hop.state[0]])
        hop.deliver_status(StatusCode.OK)


with penstock.Channel("unix:/nobody/listens/here") as channel:
    # The low priority puts the stub below the channel's other interceptors, which work as with a server.
    channel.add_interceptor(Stub({b"hi": b"canned"}), priority=-1000, methods="/penstock.Echo/*")
    answer, call = channel.unary_unary("/penstock.Echo/Unary").with_call(b"hi")
    print(answer, call.initial_metadata().get("x-stub"), call.code().name)

if answer != b"canned":
    sys.exit("the stub did not answer")
