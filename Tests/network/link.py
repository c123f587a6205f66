"""A network with a machine for servers at the other end of a link. The link loses, delays or swallows packets.

    link.py ADDRESS...      the addresses of the machine; its process id is printed as {"machine": PID}

Run in a network namespace. Each line on stdin is the link's new state, in JSON:
    {"loss": 0.05}          loses this part of the packets, at random, in both directions
    {"delay": 0.02}         delays each packet by so many seconds
    {"dark": ["10.77.0.2"]} swallows all packets from and to these addresses
Effects that a line does not name are off. The line is printed again when the new state is in effect. The end of stdin
ends the machine.

The two ends are TUN devices, between which this program passes packets. So the kernel needs no module that loses or delays
packets.
"""

import collections
import ctypes
import fcntl
import json
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time

NEAR = "10.77.0.1"
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 1, 0x1000
CLONE_NEWNET = 0x40000000


def device(name, addresses, route):
    try:
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError as error:
        sys.exit(f"no TUN device: {error}")
    for command in (f"link set {name} up mtu 1500 txqueuelen 10000",
                    *(f"addr add {address}/32 dev {name}" for address in addresses), f"route add {route} dev {name}"):
        subprocess.run(["ip", *command.split()], check=True)
    return end


class Link:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.state = {}
        self.waiting = collections.deque()

    def take(self, packet, out):
        """Decides about one packet: it is passed on, now or later, or lost."""
        if self.random.random() < self.state.get("loss", 0):
            return
        if packet[12:16] in self.dark or packet[16:20] in self.dark:
            return
        delay = self.state.get("delay", 0)
        if delay:
            self.waiting.append((time.monotonic() + delay, packet, out))
        else:
            self.put(packet, out)

    @property
    def dark(self):
        return [socket.inet_aton(address) for address in self.state.get("dark", ())]

    @staticmethod
    def put(packet, out):
        try:
            os.write(out, packet)
        except BlockingIOError:
            pass

    def due(self):
        """Passes on the packets that have waited long enough. Returns the seconds until the next packet is due; None: no packet
        waits."""
        while self.waiting:
            left = self.waiting[0][0] - time.monotonic()
            if left > 0:
                return left
            _, packet, out = self.waiting.popleft()
            self.put(packet, out)
        return None


def main():
    near = device("near", [NEAR], "10.77.0.0/24")
    # The machine is a process in a namespace of its own, in which servers are started. The process reads from
    # a pipe of this program, and so ends with it.
    machine = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    own = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{machine.pid}/ns/net") == own:
        time.sleep(0.001)
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{machine.pid}/ns/net", encoding="utf-8") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    far = device("far", sys.argv[1:], f"{NEAR}/32")
    link = Link(1)
    selector = selectors.DefaultSelector()
    for end, other in ((near, far), (far, near), (0, None)):
        selector.register(end, selectors.EVENT_READ, other)
    print(json.dumps({"machine": machine.pid}), flush=True)
    while True:
        for key, _ in selector.select(link.due()):
            if key.data is None:
                line = os.read(0, 4096)
                if not line:
                    return
                link.state = json.loads(line)
                print(json.dumps(link.state), flush=True)
                continue
            for _ in range(64):
                try:
                    link.take(os.read(key.fd, 65536), key.data)
                except BlockingIOError:
                    break


if __name__ == "__main__":
    main()
