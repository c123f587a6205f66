"""The scripts of this folder, and the expectations in their comments. docs/peer.md has the scripts' language."""

import re

from harness import check, check_equal

# Words in scripts that take long.
SLOW = re.compile(r"deadline_ms|delay|DEADLINE_EXCEEDED")


class Story:
    """A script and the expectations in its comments."""

    def __init__(self, path):
        self.path = path
        self.name = path.stem
        self.text = path.read_text()
        self.expected = self.fields("expect")
        client = self.fields("client")
        self.kinds = client.get("calls", "unary,bidi").split(",")
        self.protocols = client.get("protocol", "grpc").split(",")
        self.http = client.get("http", "2")
        check(all(kind in self.expected for kind in self.kinds), f"{path.name} expects nothing")
        self.is_open = any("|" in code for code in self.expected.values())
        check(self.is_open == bool(re.search(r"^# not determined: ", self.text, re.MULTILINE)),
              f"{path.name}: what is not determined is named where there are alternatives, and nowhere else")
        self.deadline = int(client.get("deadline_ms", 20000))

    def fields(self, word):
        found = re.search(rf"^# {word} (.*)$", self.text, re.MULTILINE)
        pairs = re.findall(r'(\w+)[=~]("(?:[^"\\]|\\.)*"|\S+)', found.group(1)) if found else []
        return {key: value.strip('"') for key, value in pairs}

    @property
    def is_slow(self):
        return bool(SLOW.search(self.text))

    @property
    def needs_tls(self):
        return "# tls only\n" in self.text

    @property
    def is_heavy(self):
        """Whether a call of the script takes several MiB of memory, so that a hundred at once would take too much."""
        return "# heavy\n" in self.text

    @property
    def is_silent(self):
        """Whether the script answers with no more than the first headers, so that each protocol has the same end."""
        return not re.search(r"^(headers|trailers|data)\b", self.text, re.MULTILINE)

    def channel(self, protocol):
        """The options of the channel for a protocol."""
        return {} if protocol == "grpc" else {"protocol": protocol, "http": self.http}

    def label(self, protocol):
        """The name of the tests for a protocol."""
        return self.name if protocol == "grpc" else f"{self.name} {protocol}"

    @property
    def counts_connections(self):
        return bool(re.search(r"^connection ", self.text, re.MULTILINE))

    def check(self, told):
        check(told["code"] in self.expected[told["call"]].split("|"),
              f"{told['code']} \"{told['message']}\", expected {self.expected[told['call']]}")
        if "message" in self.expected:
            check(self.expected["message"] in told["message"],
                  f"the message is \"{told['message']}\", without \"{self.expected['message']}\"")
        if told["call"] == "bidi" and "bidi_messages" in self.expected:
            low, _, high = self.expected["bidi_messages"].partition("..")
            check(int(low) <= told["messages"] <= int(high or low),
                  f"{told['messages']} messages, expected {self.expected['bidi_messages']}")
        if "attempts" in self.expected:
            check_equal(told["attempts"][0], int(self.expected["attempts"]), "attempts")
