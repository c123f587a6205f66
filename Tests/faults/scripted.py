"""The scripts of this folder: each is played by a peer, and the calls have to end as the script says."""

import json

import harness
from faults import HERE, Faults, check_left
from harness import Process, check, check_equal, peer
from story import Story

# One script of each kind also runs under valgrind.
VALGRIND = ("close-after-headers", "connect-reset", "continuation", "details-malformed", "garbage",
            "goaway-drops-stream", "gzip-bomb", "gzip-garbage", "half-frame", "half-message", "headers-too-large",
            "hpack-garbage", "http-503", "http1-answer", "http1-both-lengths", "http1-chunk-size-huge",
            "http1-close-mid-chunk", "http1-connect-end-cut-json", "http1-connect-error", "http1-connect-error-cut",
            "http1-folding", "http1-headers-flood", "http1-rubbish-behind", "http1-reset-without-answer",
            "http1-text-not-base64", "http1-web-trailers-cut", "message-too-large", "no-message", "push-promise",
            "rst-after-message", "rst-refused-once", "silence-after-message", "two-messages",
            "window-overflow-stream")


def answer_type(protocol, kind):
    """The content-type of an answer in protobuf."""
    if protocol == "connect" and kind == "unary":
        return "application/proto"
    return f"application/{protocol}+proto"


class Scripted(Faults):
    def stories(self):
        """All scripts of the folder."""
        stories = [Story(path) for path in sorted(HERE.glob("*.script"))]
        check(len(stories) >= 30, f"{len(stories)} scripts")
        check(sum(story.is_open for story in stories) <= 1, "scripts with alternatives")
        return stories

    def scripts(self):
        for story in self.stories():
            if story.needs_tls:
                continue
            repeat = 0 if story.is_slow else self.repeats
            for protocol in story.protocols:
                for kind in story.kinds:
                    if story.counts_connections:
                        for style in ("blocking", "callback"):
                            self.later(self.play, story, protocol, kind, (style,), 0)
                    else:
                        self.later(self.play, story, protocol, kind, ("blocking", "callback"), repeat)

    def play(self, story, protocol, kind, styles, repeat, *options):
        """Runs a script as one test for each style; the tests share a peer."""
        names = {style: f"{story.label(protocol)} {kind} {style}" for style in styles}
        if not any(self.suite.wants(name) for name in names.values()):
            return
        try:
            with peer("--script", story.path, *options) as server:
                told = self.calls(server.address, deadline=story.deadline, styles=styles, calls=kind, repeat=repeat,
                                  channel=story.channel(protocol))
        except harness.Failure as failure:
            for name in names.values():
                self.suite.note(name, failure)
            return
        for one in told:
            self.suite.run(names[one["style"]], self.judge, story, one)

    @staticmethod
    def judge(story, told):
        story.check(told)
        check_left(told, story.deadline)

    def over_tls(self):
        """All scripts but the slow ones also run over TLS: a unary call, and a bidi call on a host-driven runtime."""
        for story in self.stories():
            if story.is_slow:
                continue
            for style, kind in (("blocking", "unary"), ("host-callback", "bidi")):
                if kind in story.kinds:
                    protocol = story.protocols[0]
                    self.run(f"{story.label(protocol)} {kind} {style} tls", self.play_tls, story, protocol, kind, style)

    def play_tls(self, story, protocol, kind, style):
        with peer("--script", story.path, "--tls", *self.certificates.server_options()) as server:
            told, = self.calls(server.address, tls=self.certificates.client_options(), deadline=story.deadline,
                               styles=(style,), calls=kind, channel=story.channel(protocol))
        self.judge(story, told)

    def over_protocols(self):
        """A script of HTTP/2 whose answer does not go beyond the headers ends the calls of all protocols alike."""
        for story in self.stories():
            if story.http == "2" and story.is_silent and not story.is_slow and not story.needs_tls:
                for protocol in ("grpc-web", "grpc-web-text", "connect"):
                    for kind in story.kinds:
                        self.later(self.play, story, protocol, kind, ("callback",), 0, "--answer-type",
                                   answer_type(protocol, kind))

    def crowds(self):
        """Makes a hundred calls of a host-driven runtime at the same time, each on a connection of its own to a server that
        plays the script. Each call has to end with the status that one call alone has."""
        for story in self.stories():
            if story.http == "1.1" and not story.counts_connections and not story.is_heavy:
                self.run(f"{story.name} crowd", self.crowd, story, story.protocols[0], story.kinds[-1])

    def crowd(self, story, protocol, kind):
        channel = {**story.channel(protocol), "http1_max_connections": 100}
        # A connection that is kept serves several of the calls.
        with peer("--script", story.path, "--times", "200") as server:
            told, = self.calls(server.address, deadline=story.deadline, styles=("host-callback",), calls=kind,
                               channel=channel, at_once=100)
        self.judge(story, told)

    def valgrind(self):
        for story in self.stories():
            if story.name in VALGRIND:
                self.run(f"valgrind {story.name}", self.under_valgrind, story)

    def under_valgrind(self, story):
        deadline = max(story.deadline, 3000)
        kinds = story.kinds if not story.counts_connections else ("bidi",)
        with peer("--script", story.path) as server, \
                Process([*harness.VALGRIND, self.client, "--target", server.address, "--deadline", str(deadline),
                         "--styles", "callback", "--calls", ",".join(kinds), "--channel",
                         json.dumps({"tls": False, **story.channel(story.protocols[0])})]) as process:
            status, lines = process.wait(300)
        check_equal(status, 0, "\n".join(lines)[:1500])
        check_equal(sum(line.startswith("{") for line in lines), len(kinds), "calls")
