"""The service of the example programs: points on a map, with messages in JSON."""

import json
import threading

import grpc

FEATURES = {"1,1": "a mill", "1,2": "a bridge", "5,5": "a castle"}


def text(value):
    return json.dumps(value).encode()


class Map:
    def __init__(self):
        self.notes = {}
        self.tried = {}
        self.lock = threading.Lock()

    def get_feature(self, request, context):
        point = json.loads(request)
        if point not in FEATURES:
            context.abort(grpc.StatusCode.NOT_FOUND, f"nothing is at {point}")
        return text(FEATURES[point])

    def list_features(self, request, context):
        for point, name in sorted(FEATURES.items()):
            yield text([point, name])

    def record_route(self, requests, context):
        points = [json.loads(request) for request in requests]
        return text({"points": len(points), "features": sum(point in FEATURES for point in points)})

    def route_chat(self, requests, context):
        """Answers each note with those that were left at its place before."""
        for request in requests:
            place, note = json.loads(request)
            with self.lock:
                earlier = self.notes.setdefault(place, [])
                answers = list(earlier)
                earlier.append(note)
            for answer in answers:
                yield text(answer)

    def metadata(self, request, context):
        """Sends back the metadata that begins with `x-`, at both ends."""
        pairs = [pair for pair in context.invocation_metadata() if pair[0].startswith(("x-", "authorization"))]
        context.send_initial_metadata((("x-place", "headers"),))
        context.set_trailing_metadata((("x-place", "trailers"), ("x-data-bin", b"\x00\xff")))
        return text([[name, value.hex() if isinstance(value, bytes) else value] for name, value in pairs])

    def flaky(self, request, context):
        """UNAVAILABLE, twice for each request."""
        with self.lock:
            self.tried[request] = self.tried.get(request, 0) + 1
            tried = self.tried[request]
        if tried < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"try {tried}")
        return text(tried)

    def search(self, request, context):
        """Goes on until the call has ended."""
        ended = threading.Event()
        context.add_callback(ended.set)
        yield text("first")
        ended.wait()

    def slow(self, request, context):
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait()
        return b""

    def deadline(self, request, context):
        return text(context.time_remaining())

    def add_to(self, server):
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("examples.Map", {
            "GetFeature": unary(self.get_feature),
            "ListFeatures": stream(self.list_features),
            "RecordRoute": grpc.stream_unary_rpc_method_handler(self.record_route),
            "RouteChat": grpc.stream_stream_rpc_method_handler(self.route_chat),
            "Metadata": unary(self.metadata),
            "Flaky": unary(self.flaky),
            "Search": stream(self.search),
            "Slow": unary(self.slow),
            "Deadline": unary(self.deadline),
        }),))


def add_to(server):
    Map().add_to(server)
