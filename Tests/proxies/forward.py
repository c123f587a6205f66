"""Forward proxies, through which the channel's connections go: squid and tinyproxy (HTTP), and Dante's danted (SOCKS 5)."""

import os
import pathlib
import shutil
import subprocess

from harness import ROOT, Process, check, check_equal
from load import LOST, Load, penstock
from servers import Port, Server

PATH = os.environ["PATH"] + ":/usr/sbin"
LOGIN = ("some one", "se:cret%")

SQUID = """
http_port {address}
pid_filename {folder}/squid.pid
cache_log {folder}/cache.log
access_log none
cache deny all
shutdown_lifetime 0 seconds
auth_param basic program /usr/lib/squid/basic_ncsa_auth {folder}/users
acl users proxy_auth REQUIRED
acl refused port {refused}
http_access deny refused
{access}
"""

TINYPROXY = """
Listen 127.0.0.1
Port {number}
Timeout 600
LogLevel Critical
LogFile "{folder}/log"
PidFile "{folder}/pid"
"""

DANTE = """
logoutput: {folder}/log
internal: 127.0.0.1 port = {number}
external: 127.0.0.1
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks block {{ from: 0.0.0.0/0 to: 0.0.0.0/0 port = {refused} }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
"""


class Forwarder:
    """A proxy program with a configuration file, in a folder of its own. It refuses to connect to the port `refused`."""

    def __init__(self, folder, name, configuration, command, refused=1, **more):
        self.folder = pathlib.Path(folder) / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.port = Port()
        self.file = self.folder / "configuration"
        self.file.write_text(configuration.format(
            folder=self.folder, address=self.port.address, number=self.port.number, refused=refused, **more))
        # squid makes files in /dev/shm with this name, and leaves them there when it is killed.
        self.name = f"penstock{self.port.number}"
        self.command = [{"FILE": self.file, "NAME": self.name}.get(part, part) for part in command]
        # A program that root starts becomes another user.
        self.folder.chmod(0o777)
        self.folder.parent.chmod(0o711)

    def begin(self):
        self.process = Process([shutil.which(self.command[0], path=PATH), *self.command[1:]])
        self.port.wait(self.process)

    def end(self):
        self.process.end()
        for file in pathlib.Path("/dev/shm").glob(f"{self.name}-*"):
            file.unlink()

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, *_):
        self.end()
        self.port.holder.close()


def squid(folder, login=False, **more):
    access = "http_access allow users\nhttp_access deny all" if login else "http_access allow all"
    made = Forwarder(folder, "squid", SQUID, ["squid", "-N", "-n", "NAME", "-f", "FILE"], access=access, **more)
    hashed = subprocess.run(["openssl", "passwd", "-apr1", LOGIN[1]], check=True, capture_output=True, text=True).stdout
    (made.folder / "users").write_text(f"{LOGIN[0]}:{hashed}")
    return made


class Forward:
    def __init__(self, proxies):
        self.proxies = proxies
        self.suite = proxies.suite
        self.folder = proxies.folder

    def there(self, name):
        return self.suite.there(name, shutil.which(name, path=PATH))

    def forward(self):
        if self.there("squid"):
            self.through("squid", "http", lambda **more: squid(self.folder, **more))
            self.suite.run("squid asks for a user", self.login)
            self.suite.run("squid forwards requests of HTTP/1.1", self.forwarded)
        if self.there("tinyproxy"):
            self.through("tinyproxy", "http", lambda **more: Forwarder(
                self.folder, "tinyproxy", TINYPROXY, ["tinyproxy", "-d", "-c", "FILE"], **more), refuses=False)
        if self.there("danted"):
            # It is not killed, because its child processes live on then, with their connections.
            self.through("danted", "socks5h", lambda **more: Forwarder(
                self.folder, "danted", DANTE, ["danted", "-f", "FILE"], **more), dies=False)

    def through(self, name, scheme, make, refuses=True, dies=True):
        run = self.suite.run
        with Server() as server, Server() as other, make(refused=other.port.number) as proxy:
            url = f"{scheme}://{proxy.port.address}"
            target = f"localhost:{server.port.number}"
            run(f"{name} passes calls", self.passes, url, target, server)
            if dies:
                run(f"{name} killed", self.killed, url, target, server, proxy)
            if refuses:
                run(f"{name} refuses", self.refused, url, f"localhost:{other.port.number}")

    def passes(self, url, target, server):
        with self.proxies.channel(target, proxy=url) as channel, Load(channel, threads=16, count=400) as calls:
            calls.judge((server,))

    def killed(self, url, target, server, proxy):
        def action(_):
            proxy.end()
            proxy.begin()

        self.proxies.under(target, False, (server,), action, lost=LOST, proxy=url, wait_for_ready=True,
                           initial_backoff_ms=50, max_backoff_ms=200)

    def failure(self, url, target):
        with self.proxies.channel(target, proxy=url) as channel:
            try:
                channel.unary_unary("/any.Service/Method")(b"", timeout=20)
            except penstock.RpcError as error:
                check_equal(error.code(), penstock.StatusCode.UNAVAILABLE, "the code")
                return error.details()
        raise AssertionError("the call went through")

    def refused(self, url, target):
        words = self.failure(url, target)
        check(f"has refused to connect to {target}: " in words, words)

    def login(self):
        with Server() as server, squid(self.folder, login=True) as proxy:
            target = f"localhost:{server.port.number}"
            self.passes(f"http://some%20one:se%3acret%25@{proxy.port.address}", target, server)
            words = self.failure(f"http://{proxy.port.address}", target)
            check("407 Proxy Authentication Required; its URL has no user" in words, words)
            words = self.failure(f"http://some%20one:wrong@{proxy.port.address}", target)
            check("407 Proxy Authentication Required; it did not accept the user" in words, words)

    def forwarded(self):
        """Calls of Connect without TLS, over HTTP/1.1: squid says in a header that it has seen each of them."""
        with Process([ROOT / "build/bin/penstock-peer", "--listen", "127.0.0.1:0"]) as peer, squid(self.folder) as proxy:
            port = peer.told(port=...)["port"]
            with self.proxies.channel(f"localhost:{port}", proxy=f"http://{proxy.port.address}", protocol="connect") as channel:
                for _ in range(50):
                    call = channel.unary_unary("/penstock.Echo/Unary").with_call(b"x", timeout=20)
                    check("via" in dict(call[1].initial_metadata()), call[1].initial_metadata())
