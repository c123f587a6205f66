"""Servers and pools that fork their workers from a process that has loaded the program, with its channel."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Dict, List, Set

import pytest
from gunicorn.config import KNOWN_SETTINGS

import penstock
from helpers import SOURCES, ended, eventually

# The beginning of each program: a channel that has been used before the fork, with an interceptor.
LOADED = f"""
import os, penstock
penstock.load({penstock.load()!r})
class Worker(penstock.Interceptor):
    def on_start(self, hop): hop.metadata["x-worker"] = str(os.getpid())
parent = os.getpid()
channel = penstock.Channel(os.environ["TARGET"], tls=False, interceptors=[Worker()])
echo = channel.unary_unary("/penstock.Echo/Unary")
probe = channel.unary_unary("/penstock.Probe/Unary")
assert echo(b"loaded", timeout=60) == b"loaded"
def seen():
    assert b'["x-worker", "%d"]' % os.getpid() in probe(b"{{}}", timeout=60)
    return str(os.getpid())
"""


def environment(target: str, folder: Path) -> Dict[str, str]:
    path = os.pathsep.join([str(folder), SOURCES])
    return dict(os.environ, TARGET=target, PYTHONPATH=path)


def started(target: str, folder: Path, *command: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-X", "dev", "-u", *command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        arguments, env=environment(target, folder), cwd=folder, text=True, start_new_session=True, **pipes
    )


@pytest.mark.parametrize(
    "worker", ["sync", *(pytest.param(each, marks=pytest.mark.again) for each in ("gthread", "gevent"))]
)
def test_gunicorn_with_a_program_that_is_loaded_before(server: str, tmp_path: Path, worker: str) -> None:
    hub = "import penstock.gevent; penstock.gevent.init()" if worker == "gevent" else ""
    text = f"""{hub}{LOADED}
def app(environ, start_response):
    start_response("200 OK", [])
    return [seen().encode()]
"""
    (tmp_path / "served.py").write_text(text)
    command = ["-m", "gunicorn", "--preload", "--workers=2", f"--worker-class={worker}", "--bind=127.0.0.1:0"]
    if worker == "gthread":
        command.append("--threads=4")
    # Newer versions would make a socket in the user's folder.
    if any(setting.name == "control_socket_disable" for setting in KNOWN_SETTINGS):
        command.append("--no-control-socket")
    with started(server, tmp_path, *command, "served:app") as process:
        assert process.stderr is not None
        log: List[str] = []
        for line in process.stderr:
            log.append(line)
            if "Listening at" in line:
                break
        else:
            pytest.fail("".join(log))
        address = log[-1].split()[-2]
        workers: Set[bytes] = set()

        def both_have_answered() -> bool:
            with urllib.request.urlopen(address, timeout=60) as answer:
                workers.add(answer.read())
            return len(workers) == 2

        eventually(both_have_answered)
        process.terminate()
        _, complaints = ended(process)
    assert process.returncode == 0, complaints
    assert "Traceback" not in complaints, complaints


@pytest.mark.again
def test_celery_s_pool_of_processes(server: str, tmp_path: Path) -> None:
    for folder in ("queue", "results", "control"):
        (tmp_path / folder).mkdir()
    text = f"""{LOADED}
import celery
app = celery.Celery("tasks", broker="filesystem://", backend="file://{tmp_path}/results")
queue = "{tmp_path}/queue"
control = "{tmp_path}/control"
app.conf.broker_transport_options = dict(data_folder_in=queue, data_folder_out=queue, control_folder=control)
@app.task
def work(number):
    return [seen(), str(parent), echo(b"%d" % number, timeout=60).decode()]
"""
    (tmp_path / "tasks.py").write_text(text)
    asking = """
import tasks
results = [tasks.work.delay(number) for number in range(20)]
found = [result.get(timeout=60) for result in results]
assert [text for _, _, text in found] == [str(number) for number in range(20)]
# Children of one process, which has loaded the program.
parents = {parent for _, parent, _ in found}
assert len(parents) == 1
assert not parents & {own for own, _, _ in found}
print("last")
"""
    options = ["--pool=prefork", "--concurrency=2", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    with started(server, tmp_path, "-m", "celery", "-A", "tasks", "worker", *options) as worker:
        with started(server, tmp_path, "-c", asking) as client:
            printed, complaints = ended(client)
        worker.terminate()
        _, log = ended(worker)
    assert printed == "last\n", complaints + log
    assert worker.returncode == 0, log


@pytest.mark.parametrize(
    "method",
    [
        *(pytest.param(each, marks=pytest.mark.again) for each in ("fork", "spawn", "forkserver")),
        "forkserver, preloaded",
    ],
)
def test_each_way_in_which_multiprocessing_starts(server: str, tmp_path: Path, method: str) -> None:
    """Python 3.14 takes forkserver by itself. With a preloaded module the children are forked from a server that has
    the module's channel."""
    text = f"""{LOADED}
def call(number):
    return seen(), echo(b"%d" % number, timeout=60), list(channel.stream_stream("/penstock.Echo/Bidi")([b"1", b"2"]))
"""
    (tmp_path / "loaded.py").write_text(text)
    way, _, preloaded = method.partition(", ")
    main = f"""
import multiprocessing, os, loaded
if __name__ == "__main__":
    context = multiprocessing.get_context("{way}")
    if "{preloaded}": context.set_forkserver_preload(["loaded"])
    with context.Pool(3) as pool:
        found = pool.map(loaded.call, range(30), chunksize=1)
        pool.close()
        pool.join()
    assert [data for _, data, _ in found] == [b"%d" % number for number in range(30)]
    assert [messages for _, _, messages in found] == [[b"1", b"2"]] * 30
    assert str(os.getpid()) not in {{own for own, _, _ in found}}
    assert loaded.echo(b"parent") == b"parent"
    print("last")
"""
    (tmp_path / "main.py").write_text(main)
    # Newer versions warn of any fork of a process with threads.
    quiet = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    with started(server, tmp_path, *quiet, "main.py") as process:
        printed, complaints = ended(process)
    assert (printed, complaints) == ("last\n", "")


@pytest.mark.again
def test_the_way_that_python_takes_by_itself(server: str, tmp_path: Path) -> None:
    """The program makes its channel only in `__main__`, so each child makes one of its own, or has the parent's."""
    main = f"""
import multiprocessing
{LOADED}
def call(number):
    return echo(b"%d" % number, timeout=60)
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        assert pool.map(call, range(10)) == [b"%d" % number for number in range(10)]
        pool.close()
        pool.join()
    print("last")
"""
    (tmp_path / "main.py").write_text(main)
    with started(server, tmp_path, "main.py") as process:
        printed, complaints = ended(process)
    # On the versions that fork by themselves, Python warns of threads of the package.
    assert printed == "last\n", complaints
    assert "Error" not in complaints
