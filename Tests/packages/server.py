"""A server on grpcio with the services of the packages: `server.py CERTIFICATE KEY`. It prints {"address": ..., "tls": ...},
and ends with its standard input."""

import json
import pathlib
import sys
from concurrent import futures

import example_services
import grpc
import services
import small_services


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32), options=[("grpc.so_reuseport", 0)])
    for module in (services, small_services, example_services):
        module.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    certificate, key = (pathlib.Path(path).read_bytes() for path in sys.argv[1:3])
    tls = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    server.start()
    print(json.dumps({"address": f"127.0.0.1:{port}", "tls": f"127.0.0.1:{tls}"}), flush=True)
    sys.stdin.read()
    server.stop(0)


if __name__ == "__main__":
    main()
