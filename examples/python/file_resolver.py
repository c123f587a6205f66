#!/usr/bin/env python3
"""A resolver of the program's own, which watches a file. The channel connects to the servers that the file names, and follows its
changes. The file contains the argument of `Resolver.push` as JSON.

    file_resolver.py [TARGET]
"""

import json
import os
import sys
import tempfile
import threading
import time

import penstock


class FileResolver(penstock.Resolver):
    """Watches a file as long as the channel wants addresses."""

    def __init__(self, path):
        self.path = path
        self.watcher = None

    def resolve(self):
        # `resolve` may be called twice without a `stop` in between. It runs on the thread that drives the runtime, so another
        # thread watches the file.
        if self.watcher is None:
            self.watcher = threading.Thread(target=self.watch, daemon=True)
            self.watcher.start()

    def stop(self):
        self.watcher = None

    def watch(self):
        seen = None
        while self.watcher is threading.current_thread():
            try:
                now = os.stat(self.path).st_mtime_ns
                if now != seen:
                    with open(self.path) as file:
                        self.push(json.load(file))
                    seen = now
            except (OSError, ValueError) as error:
                # With an error the channel keeps the addresses that it knows.
                self.push({"error": f"{self.path} can't be read: {error}"})
            except penstock.InvalidArgumentError as error:
                print(f"{self.path} is not taken: {error}")
                seen = now
            except penstock.ClosedError:
                return
            time.sleep(0.1)


def write(path, *addresses):
    """Replaces the file by a new one in one step, so that nobody reads half of it."""
    with open(f"{path}.new", "w") as file:
        json.dump({"addresses": [{"address": address} for address in addresses]}, file)
    os.replace(f"{path}.new", path)


target = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "servers.json")
    write(path, "unix:/nowhere")
    with penstock.Channel("echo", tls=False, resolver=FileResolver(path)) as channel:
        echo = channel.unary_unary("/penstock.Echo/Unary")
        try:
            echo(b"hi", timeout=5)
            sys.exit("there is a server at unix:/nowhere")
        except penstock.RpcError as error:
            print(f"{error.code().name}: {error.details()}")
        write(path, target)
        print(f"the file names {target}: {echo(b'hi', timeout=5, wait_for_ready=True).decode()}")
