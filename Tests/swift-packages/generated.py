"""The files that protoc makes with protoc-gen-swift and protoc-gen-penstock-swift: those in the tree are what these make now,
each time the same, and faults are told."""

import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "Tests" / "swift-packages"
PROTOS = HERE / "clients" / "protos"
PROTOC = [ROOT / ".venv" / "bin" / "python", "-m", "grpc_tools.protoc"]
# For messages, and for clients.
PLUGINS = ("protoc-gen-swift", "protoc-gen-penstock-swift")
MODULES = f"ProtoPathModuleMappings={PROTOS / 'modules.txt'}"
VISIBLE = f"Visibility=Public,UseAccessLevelOnImports=true,FileNaming=DropPath,{MODULES}"

# Each folder with made files: the folder of the .proto files, their names, and the parameters of both plugins.
MADE = {
    HERE / "clients" / "Shapes": (PROTOS, ["common/shapes.proto"], VISIBLE),
    HERE / "clients" / "Clients": (PROTOS, ["echo.proto", "words.proto"], VISIBLE),
    HERE / "clients" / "Bare": (PROTOS, ["bare.proto"], "Visibility=Public"),
    ROOT / "examples" / "swift-protobuf" / "greeter":
        (ROOT / "examples" / "swift-protobuf" / "greeter", ["helloworld.proto"], ""),
}

SERVICE = 'syntax = "proto3"; message One {{}} {} service Two {{ rpc Three(One) returns (One); }}\n'
# Each fault: the parameters, a .proto file, and the words in which it is told.
FAULTS = {
    "an unknown parameter": (
        "Visability=Public", SERVICE.format(""),
        "there is no parameter Visability; there are Visibility, FileNaming, ProtoPathModuleMappings and "
        "UseAccessLevelOnImports"),
    "an unknown value": (
        "Visibility=Open", SERVICE.format(""), 'the parameter Visibility is "Open"; it can be Internal, Package, Public'),
    "an unknown naming": (
        "FileNaming=Short", SERVICE.format(""),
        'the parameter FileNaming is "Short"; it can be FullPath, PathToUnderscores, DropPath'),
    "a switch that is neither": (
        "UseAccessLevelOnImports=maybe", SERVICE.format(""),
        'the parameter UseAccessLevelOnImports is "maybe"; it can be True, False'),
    "mappings that are not there": (
        "ProtoPathModuleMappings=nowhere.txt", SERVICE.format(""),
        'the parameter ProtoPathModuleMappings: nowhere.txt: failToOpen(path: "nowhere.txt")'),
    "a message with the client's name": (
        "", SERVICE.format("message TwoClient {}"),
        "one.proto: TwoClient and a client of one.proto would both be TwoClient; the option swift_prefix gives others names"),
    "a message with the module's name": (
        "", SERVICE.format("enum Penstock { NONE = 0; }"),
        "one.proto: Penstock and the module Penstock would both be Penstock; the option swift_prefix gives others names"),
}
# The file that each naming makes of folder/one.proto.
NAMINGS = {
    "FullPath": "folder/one.penstock.swift",
    "PATH_TO_UNDERSCORES": "folder_one.penstock.swift",
    "DropPath": "one.penstock.swift",
}


def protoc(plugins, plugin, folder, parameters, out, *protos):
    """Runs protoc with a plugin from the folder `plugins`, in `folder`."""
    name = plugin.removeprefix("protoc-gen-")
    command = [*PROTOC, f"-I{folder}", f"--plugin={plugin}={plugins / plugin}", f"--{name}_out={parameters}:{out}", *protos]
    return subprocess.run([str(part) for part in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)


def make(plugins, out, folder, protos, parameters):
    """Makes messages and clients in the folder `out`; gives the names of the files."""
    for plugin in PLUGINS:
        done = protoc(plugins, plugin, folder, parameters, out, *protos)
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
    return sorted(path.name for path in pathlib.Path(out).iterdir())


def write(plugins):
    """Writes the made files into the tree."""
    for place, (folder, protos, parameters) in MADE.items():
        with tempfile.TemporaryDirectory() as out:
            for name in make(plugins, out, folder, protos, parameters):
                shutil.copyfile(pathlib.Path(out, name), place / name)


def flaws(plugins):
    """Each check by its name, with its flaw in words, or none."""
    for place, (folder, protos, parameters) in MADE.items():
        with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as again:
            names = make(plugins, out, folder, protos, parameters)
            make(plugins, again, folder, protos, parameters)
            kept = sorted(path.name for path in place.glob("*.swift") if path.name != "main.swift")
            flaw = "" if names == kept else f"made: {names}, in the tree: {kept}"
            for name in names:
                made = pathlib.Path(out, name).read_bytes()
                if made != pathlib.Path(again, name).read_bytes():
                    flaw = f"{name} is another one each time"
                elif not flaw and made != (place / name).read_bytes():
                    flaw = f"{name} is not what the plugins make now: Tests/swift-packages/run generate writes it"
            yield f"the files of {place.relative_to(ROOT)}", flaw
    with tempfile.TemporaryDirectory() as folder:
        proto = pathlib.Path(folder, "one.proto")
        for name, (parameters, text, words) in FAULTS.items():
            proto.write_text(text)
            done = protoc(plugins, PLUGINS[1], folder, parameters, folder, proto.name)
            said = done.stdout.strip().removeprefix("--penstock-swift_out: ")
            yield name, "" if done.returncode == 1 and said == words else f"status {done.returncode}: {said}"
        pathlib.Path(folder, "folder").mkdir()
        proto = pathlib.Path(folder, "folder", "one.proto")
        proto.write_text(SERVICE.format(""))
        pathlib.Path(folder, "folder", "bare.proto").write_text('syntax = "proto3"; message Bare {}\n')
        for naming, name in NAMINGS.items():
            with tempfile.TemporaryDirectory() as out:
                done = protoc(plugins, PLUGINS[1], folder, f"FileNaming={naming}", out, "folder/one.proto", "folder/bare.proto")
                made = [str(path.relative_to(out)) for path in pathlib.Path(out).rglob("*.swift")]
            # A file without services gets no client.
            yield f"the naming {naming}", "" if made == [name] else f"made {made}: {done.stdout}"


def check(plugins):
    """Makes all files anew, and provokes each fault; gives how many checks have passed and failed."""
    passed = failed = 0
    for name, flaw in flaws(plugins):
        passed, failed = passed + (not flaw), failed + bool(flaw)
        if flaw:
            print(f"FAIL: {name}: {flaw}")
    return passed, failed
