"""For the programs here: `PROGRAM WAY TARGET CASE...`. The way says where the name `grpc` comes from:

shim    from penstock, which takes the place of grpcio; in .venv-packages it is not installed
beside  the packages import grpcio, and the channels are those of penstock.grpc; grpcio makes no channel
grpcio  from grpcio, with its own channels: the cases prove of themselves that they are right

Import this module first, then the packages. Each case that is run prints `ok NAME` or `FAILED NAME`. In the ways that use
penstock each case has to make a call that one of our interceptors sees.
"""

import asyncio
import inspect
import logging
import sys
import threading
import traceback
import warnings

WAY, TARGET = sys.argv[1:3]
OURS = WAY != "grpcio"
CASES = {}
# The lines of a traceback that are printed.
LAST = 8
# Warnings of the packages at their import are not the matter here.
warnings.simplefilter("ignore")
# The packages log each status that the cases let servers answer.
logging.disable(logging.CRITICAL)


if OURS:
    import through

    counting = through.load()
else:
    # A thread of grpcio's that watches a channel prints its exception if the channel is closed.
    threading.excepthook = lambda _: None
if WAY == "shim":
    through.penstock.install_grpc_shim()
import grpc  # noqa: E402
import grpc.aio  # noqa: E402

# The modules whose functions make channels.
sync, aio = through.forbid() if WAY == "beside" else (grpc, grpc.aio)


def channel(**more):
    return sync.insecure_channel(TARGET, **more)


def aio_channel(**more):
    return seen(aio.insecure_channel(TARGET, **more))


def seen(made):
    """The channel of grpc.aio's, with our interceptor that counts its calls."""
    if OURS:
        made.add_interceptor(counting)
    return made


def case(function):
    CASES[function.__name__] = function
    return function


def expect(found, wanted, what="value"):
    if found != wanted:
        raise AssertionError(f"{what} is {str(found)[:300]!r}, not {str(wanted)[:300]!r}")


def failure(kind, call, *arguments, **more):
    """The exception of this kind that the call raises."""
    try:
        call(*arguments, **more)
    except kind as error:
        return error
    raise AssertionError("the call has succeeded")


def run(function):
    before = len(counting.methods) if OURS else 0
    if inspect.iscoroutinefunction(function):
        asyncio.run(function())
    else:
        function()
    if OURS and len(counting.methods) == before:
        raise AssertionError("none of our interceptors has seen a call")


def main():
    for name in sys.argv[3:]:
        try:
            run(CASES[name])
        except BaseException:
            print(*traceback.format_exc().splitlines()[-LAST:], sep="\n")
            print("FAILED", name, flush=True)
        else:
            print("ok", name, flush=True)
    if WAY == "shim" and any(name.startswith("grpc._cython") for name in sys.modules):
        raise SystemExit("grpcio has been imported")
