"""A server, its certificates and what protobuf needs, for the Pythons that try the wheel."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "Tests" / "wheel"
OWN_PYTHON = ROOT / ".venv" / "bin" / "python"


def run(*command, **options):
    done = subprocess.run(
        [str(part) for part in command],
        text=True,
        cwd=options.pop("cwd", ROOT),
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))} gave {done.returncode}:\n{done.stdout}"
    return done.stdout


class Place:
    """A server, its certificates, and what protobuf needs, which all Pythons share."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.certificates = self._certificates()
        self.stubs = folder / "stubs"
        self.stubs.mkdir()
        protos = ROOT / "Tests/interop/proto"
        run(
            OWN_PYTHON,
            "-m",
            "grpc_tools.protoc",
            f"-I{protos}",
            f"--python_out={self.stubs}",
            f"--grpc_python_out={self.stubs}",
            *sorted(protos.glob("*.proto")),
        )
        server = stack.enter_context(
            subprocess.Popen(
                [OWN_PYTHON, ROOT / "bindings/python/tests/server.py", self.stubs, self.certificates],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(server.stdin.close)
        self.target = {name: f"127.0.0.1:{port}" for name, port in json.loads(server.stdout.readline()).items()}
        # An OpenSSL that is newer than any, and does nothing but say so.
        source = folder / "newer.c"
        source.write_text('const char *OpenSSL_version(int which) { return which == 6 ? "99.0.1" : 0; }\n')
        (folder / "newer").mkdir()
        run(os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", folder / "newer/libcrypto.so.3", source)

    def _certificates(self):
        folder = self.folder / "certificates"
        folder.mkdir()
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        run(
            "openssl",
            "req",
            "-x509",
            *key,
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-subj",
            "/CN=tests of the wheel",
            "-days",
            "2",
            cwd=folder,
        )
        run("openssl", "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server", cwd=folder)
        (folder / "extensions").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        run(
            "openssl",
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "extensions",
            "-out",
            "server.pem",
            cwd=folder,
        )
        return folder

    def hidden(self, roots, path, *command):
        """Runs the command as Tests/wheel/hidden says; `path` is all of PATH."""
        own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        return run(*own, HERE / "hidden", self.certificates / "ca.pem", roots, path, *command, cwd="/")
