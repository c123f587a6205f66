"""A DNS server with the records that a test gives it, for SRV, A and AAAA (RFC 1035, RFC 2782), by UDP and TCP."""

import contextlib
import socket
import struct
import threading

A, SRV = 1, 33
OK, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3


def encoded(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label) + b"\0"


def service(priority, weight, port, host):
    return SRV, struct.pack("!HHH", priority, weight, port) + encoded(host)


def address(text):
    return A, socket.inet_aton(text)


class Names:
    """A DNS server at port 53 of `host`."""

    def __init__(self, host):
        # Lists of records by name, in lower case.
        self.records = {}
        # The code of all answers.
        self.code = OK
        # Whether questions stay without an answer.
        self.silent = False
        # All questions so far: name, type, and "udp" or "tcp".
        self.questions = []
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((host, 53))
        self.tcp = socket.create_server((host, 53))
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self.run_udp, self.run_tcp)]
        for thread in self.threads:
            thread.start()

    def run_udp(self):
        while True:
            question, sender = self.udp.recvfrom(512)
            if not question:
                return
            answer = self.answer(question, "udp")
            if answer and len(answer) > 512:
                # An answer that is too long is asked for again by TCP (TC).
                answer = answer[:2] + bytes([answer[2] | 2]) + answer[3:6] + bytes(6) + self.asked(question)[2]
            if answer:
                self.udp.sendto(answer, sender)

    def run_tcp(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.tcp.accept()
                with client, contextlib.suppress(OSError, struct.error):
                    size, = struct.unpack("!H", client.recv(2, socket.MSG_WAITALL))
                    answer = self.answer(client.recv(size, socket.MSG_WAITALL), "tcp")
                    if answer:
                        client.sendall(struct.pack("!H", len(answer)) + answer)

    @staticmethod
    def asked(question):
        """The name and type of a question, and its bytes."""
        at, labels = 12, []
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind, = struct.unpack_from("!H", question, at + 1)
        return ".".join(labels).lower(), kind, question[12:at + 5]

    def answer(self, question, way):
        name, kind, bytes_ = self.asked(question)
        self.questions.append((name, kind, way))
        if self.silent:
            return None
        found = self.records.get(name)
        code = self.code or (NO_SUCH_NAME if found is None else OK)
        records = [] if code else [record for record in found if record[0] == kind]
        answer = struct.pack("!2sHHHHH", question[:2], 0x8180 | code, 1, len(records), 0, 0) + bytes_
        for kind_, data in records:
            answer += struct.pack("!HHHIH", 0xC00C, kind_, 1, 0, len(data)) + data
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self.udp.getsockname())
        self.tcp.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(20)
        self.udp.close()
        self.tcp.close()
