"""Health, reflection, a status with details, and the greeter: for the small packages of grpcio's own project."""

import helloworld_pb2
import helloworld_pb2_grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status


def refuse(context):
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason="BECAUSE", domain="example.org", metadata={"who": "nobody"}))
    context.abort_with_status(rpc_status.to_status(status_pb2.Status(code=9, message="not so", details=[detail])))


class Greeter(helloworld_pb2_grpc.GreeterServicer):
    def SayHello(self, request, context):
        if request.name == "nobody":
            refuse(context)
        parent = dict(context.invocation_metadata()).get("traceparent", "")
        context.set_trailing_metadata((("x-traceparent", parent),))
        return helloworld_pb2.HelloReply(message=f"Hello, {request.name}!")

    def SayHelloStreamReply(self, request, context):
        for greeting in ("Hello", "Servus", "Salut"):
            yield helloworld_pb2.HelloReply(message=f"{greeting}, {request.name}!")

    def SayHelloBidiStream(self, request_iterator, context):
        for request in request_iterator:
            yield helloworld_pb2.HelloReply(message=f"Hello, {request.name}!")


def add_to(server):
    helloworld_pb2_grpc.add_GreeterServicer_to_server(Greeter(), server)
    healthy = health.HealthServicer()
    healthy.set("helloworld.Greeter", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection(("helloworld.Greeter", reflection.SERVICE_NAME), server)
