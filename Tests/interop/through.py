"""For programs written for grpcio whose calls go through this library: loads it, counts the calls, and forbids grpcio's."""

import os

import penstock


class Counting:
    """An interceptor that sees every call."""

    def __init__(self):
        self.methods = []

    def on_start(self, hop):
        self.methods.append(hop.method)


def load():
    """Loads the library that PENSTOCK_LIBRARY names. Gives the interceptor that counts the calls, which has to be added to
    channels for asyncio, too."""
    penstock.load(os.environ["PENSTOCK_LIBRARY"])
    counting = Counting()
    penstock.add_interceptor(counting)
    return counting


def refuse(*_, **__):
    raise AssertionError("a channel of grpcio's is made")


def forbid():
    """Making a channel of grpcio's raises from now on. Gives the modules in their place, for both styles."""
    import grpc._channel
    import grpc._cython.cygrpc
    import grpc.aio._channel

    grpc._channel.Channel = grpc._cython.cygrpc.Channel = grpc._cython.cygrpc.AioChannel = refuse
    grpc.aio._channel.Channel = refuse
    import penstock.grpc
    import penstock.grpc.aio

    return penstock.grpc, penstock.grpc.aio
