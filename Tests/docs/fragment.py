"""Runs a Python fragment of a document: `fragment.py SOURCE TARGET [CODE]`.

Registers the interceptors that the fragment defines, and makes a unary call and a stream. At least one callback of these
interceptors has to run. With CODE, the server ends the first attempt of each call with that status; with the environment
variable BEGINS=headers it sends response headers before that.
"""

import os
import sys
from pathlib import Path

import penstock

METHODS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status", "on_demand", "on_sent", "on_pick",
           "intercept")
STYLES = (penstock.Interceptor, penstock.CompletionInterceptor, penstock.SyncInterceptor)
ran = 0


def counted(method):
    def run(self, *arguments):
        global ran
        ran += 1
        return method(self, *arguments)

    return run


class Server(penstock.Interceptor):
    """Lets the server fail the first attempt of each call."""

    def __init__(self, code):
        self.code = code

    def on_start(self, hop):
        if hop.attempt == 1:
            hop.metadata["x-status"] = str(int(self.code))
            hop.metadata["x-begin"] = os.environ["BEGINS"]


def main():
    source, target, *code = sys.argv[1:]
    with penstock.Channel(target, tls=False) as channel:
        names = {"penstock": penstock, "channel": channel}
        exec(compile(Path(source).read_text(encoding="utf-8"), source, "exec"), names)
        for thing in list(names.values()):
            if isinstance(thing, type) and thing not in STYLES and issubclass(thing, STYLES):
                for name in METHODS:
                    if name in vars(thing):
                        setattr(thing, name, counted(vars(thing)[name]))
                channel.add_interceptor(thing(), priority=1)
        if code:
            channel.add_interceptor(Server(penstock.StatusCode[code[0]]))
        print(channel.unary_unary("/penstock.Echo/Unary", str.encode, bytes.decode)("you"))
        try:
            for answer in channel.stream_stream("/penstock.Echo/Bidi")([b"you"]):
                print(answer.decode())
        except penstock.RpcError as error:
            # A fragment that is meant for unary calls may end a stream.
            print(error)
    if not ran:
        sys.exit("no callback of the fragment ran")


main()
