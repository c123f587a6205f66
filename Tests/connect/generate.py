"""Generates the Python code of the messages, under build/."""

import subprocess
import sys

import harness


def main():
    harness.generate_protos()
    source, made = harness.ROOT / "Tests" / "connect" / "probe.proto", harness.GENERATED / "probe_pb2.py"
    with harness.alone():
        if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
            subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{source.parent}", f"--python_out={made.parent}",
                            source.name], check=True)


if __name__ == "__main__":
    main()
