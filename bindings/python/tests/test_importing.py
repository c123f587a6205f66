"""`import penstock` imports next to nothing: each name brings its module when it is first used."""

from __future__ import annotations

import ast
import importlib
import pickle
from pathlib import Path
from typing import Any, Dict

import pytest

import penstock
from helpers import ended, program, run
from test_library import run as run_alone

FOLDER = Path(penstock.__file__).parent
HOMES: Dict[str, str] = penstock._HOMES
# Modules that take long, and that not each program needs.
HEAVY = ("asyncio", "concurrent", "dataclasses", "inspect", "json", "typing", "typing_extensions")


def test_each_name_is_that_of_its_home() -> None:
    for name, home in HOMES.items():
        module = importlib.import_module(home, "penstock")
        found = module if home == f".{name}" else getattr(module, name)
        assert getattr(penstock, name) is found, name


def test_the_lists_of_names_agree() -> None:
    shown: Dict[str, str] = {}
    for statement in ast.parse((FOLDER / "__init__.py").read_text()).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for each in statement.body:
                if isinstance(each, ast.ImportFrom) and each.level:
                    home = f".{each.module or each.names[0].name}"
                    shown.update((alias.name, home) for alias in each.names)
    assert shown == HOMES
    assert penstock.__all__ == sorted([*HOMES, "install_grpc_shim"])
    assert {*penstock.__all__, "__version__"} <= set(dir(penstock))


def test_a_star_gives_all_names() -> None:
    found: Dict[str, Any] = {}
    exec("from penstock import *", found)
    assert {name: found[name] for name in penstock.__all__} == {
        name: getattr(penstock, name) for name in penstock.__all__
    }


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'Chanel'"):
        penstock.Chanel  # noqa: B018
    with pytest.raises(ImportError, match="Chanel"):
        exec("from penstock import Chanel")


def test_the_import_brings_nothing_heavy() -> None:
    # `logging` is needed at once, see `penstock._hooks`; in Python 3.14 it brings dataclasses.
    program = (
        "import logging\n"
        "before = set(sys.modules)\n"
        "import penstock, atexit, ctypes, importlib\n"
        "came = set(sys.modules) - before\n"
        f"print(*sorted(name for name in came if name.startswith('penstock') or name in {HEAVY}))\n"
        "penstock.StatusCode\n"
        "print('penstock._channels' in sys.modules)"
    )
    done = run_alone(program)
    assert done.stdout.splitlines() == ["penstock penstock._hooks penstock._interpreter", "False"], done.stderr


def test_submodules_can_be_imported_in_each_way() -> None:
    program = (
        "import penstock\nfrom penstock import aio\nimport penstock.grpc\n"
        "print(penstock.aio is aio, penstock.grpc.StatusCode.OK.name, penstock.ready.__name__, penstock.__version__)"
    )
    done = run_alone(program)
    assert done.stdout == f"True OK penstock.ready {penstock.__version__}\n", done.stderr


def test_a_pickle_brings_its_modules() -> None:
    pickled = pickle.dumps([penstock.StatusCode.NOT_FOUND, penstock.Channel, penstock.Kind.UNARY])
    text = f"""
import pickle
for each in pickle.loads({pickled!r}): print(each)
"""
    done = run_alone(text)
    assert done.stdout.split("\n")[:-1] == [
        str(each) for each in (penstock.StatusCode.NOT_FOUND, penstock.Channel, penstock.Kind.UNARY)
    ], done.stderr


# ---- First use ----


def test_each_name_may_be_the_first(server: str) -> None:
    text = """
for name in penstock.__all__:
    child = os.fork()
    if child == 0:
        try: getattr(penstock, name)
        except BaseException as error: print(name, repr(error), flush=True)
        finally: os._exit(0)
    os.waitpid(child, 0)
print(len(penstock.__all__))
"""
    assert run(text, server) == f"{len(penstock.__all__)}\n"


def test_threads_may_use_names_first_at_the_same_time(server: str) -> None:
    text = """
import random
sys.setswitchinterval(1e-5)
def work(seed, barrier, found):
    names = list(penstock.__all__)
    random.Random(seed).shuffle(names)
    barrier.wait(60)
    try: found.append({name: getattr(penstock, name) for name in names})
    except BaseException as error: print(repr(error), flush=True)
for number in range(8):
    child = os.fork()
    if child == 0:
        barrier, found = threading.Barrier(6), []
        threads = [threading.Thread(target=work, args=(number * 6 + each, barrier, found)) for each in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        same = [all(each[name] is found[0][name] for name in penstock.__all__) for each in found]
        print(same == [True] * 6, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    assert run(text, server) == "True\n" * 8


def test_functions_registered_after_the_import_can_make_calls(server: str) -> None:
    """At the end of the process and in a child, although the program uses the package's names only afterwards."""
    text = """
import atexit
def call():
    print(echo(b"made"), flush=True)
atexit.register(call)
os.register_at_fork(after_in_child=lambda: print(penstock._channels.runtime._default_lock is not lock, flush=True))
channel = penstock.Channel(target, tls=False)
echo = channel.unary_unary("/penstock.Echo/Unary")
lock = penstock._channels.runtime._default_lock
if os.fork() == 0:
    os._exit(0)
os.wait()
"""
    assert run(text, server) == "True\nb'made'\n"


def test_a_hook_that_raises_keeps_no_other_from_running(server: str) -> None:
    """Neither in a child, which can make calls, nor at the end of the process. Python prints every exception."""
    text = """
from penstock import _hooks
def broken(): raise LookupError(f"broken in {'the parent' if os.getpid() == parent else 'a child'}")
def broken_too(): raise OSError("broken, too")
def told(): print("told", flush=True)
def printing_fails(*error): raise ConnectionError("no log")
sys.excepthook = printing_fails
parent = os.getpid()
for hooks in (_hooks.in_child, _hooks.at_exit):
    hooks.update(first=broken, second=broken_too)
# Its modules register theirs behind those.
with penstock.Channel(target, tls=False) as channel:
    channel.unary_unary("/penstock.Echo/Unary")(b"x")
assert len(_hooks.in_child) == 4 and len(_hooks.at_exit) == 3
for hooks in (_hooks.in_child, _hooks.at_exit):
    hooks["last"] = told
if os.fork() == 0:
    with penstock.Channel(target, tls=False) as channel:
        print(channel.unary_unary("/penstock.Echo/Unary")(b"child"), flush=True)
    os._exit(0)
os.wait()
"""
    with program(text, server) as process:
        printed, complaints = ended(process)
    assert printed == "told\nb'child'\ntold\n"
    for words, count in (
        ("broken in a child", 1),
        ("broken in the parent", 1),
        ("OSError: broken, too", 2),
        ("no log", 4),
    ):
        assert complaints.count(words) == count, complaints


def test_a_module_that_is_loaded_again_replaces_its_hooks() -> None:
    text = """
import importlib
from penstock import _hooks
from penstock._calls import ends
before = list(_hooks.in_child.items())
importlib.reload(ends)
after = list(_hooks.in_child.items())
print([name for name, _ in before] == [name for name, _ in after], before == after)
"""
    assert run(text, "") == "True False\n"
