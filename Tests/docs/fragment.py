"""Runs a Python fragment of a document: `fragment.py SOURCE TARGET`.

Registers the interceptors that the fragment defines, and makes a unary call and a stream. At least one callback of these
interceptors has to run.
"""

import sys
from pathlib import Path

import penstock

METHODS = ("on_start", "on_send", "on_half_close", "on_headers", "on_receive", "on_status")
ran = 0


def counted(method):
    def run(self, *arguments):
        global ran
        ran += 1
        return method(self, *arguments)

    return run


def main():
    source, target = sys.argv[1:]
    with penstock.Channel(target, tls=False) as channel:
        names = {"penstock": penstock, "channel": channel}
        exec(compile(Path(source).read_text(encoding="utf-8"), source, "exec"), names)
        for thing in list(names.values()):
            if isinstance(thing, type) and issubclass(thing, penstock.Interceptor):
                for name in METHODS:
                    if name in vars(thing):
                        setattr(thing, name, counted(vars(thing)[name]))
                channel.add_interceptor(thing(), priority=1)
        print(channel.unary_unary("/penstock.Echo/Unary", str.encode, bytes.decode)("you"))
        for answer in channel.stream_stream("/penstock.Echo/Bidi")([b"you"]):
            print(answer.decode())
    if not ran:
        sys.exit("no callback of the fragment ran")


main()
