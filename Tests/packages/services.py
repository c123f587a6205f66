"""The services of the clouds' and databases' packages, as far as the programs here use them, kept in memory."""

import base64
import json
import queue
import threading

import grpc
from aetcd import rpc as etcd
from aetcd.rpc import rpc_pb2_grpc as etcd_services
from google.cloud.secretmanager_v1 import types as secret
from google.protobuf import duration_pb2
from google.pubsub_v1 import types as pubsub
from google.rpc import error_details_pb2
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from qdrant_client import grpc as qdrant
from qdrant_client.grpc import collections_service_pb2_grpc, points_service_pb2_grpc, qdrant_pb2_grpc


def unary(function, request, response):
    """A handler with types of proto-plus."""
    return grpc.unary_unary_rpc_method_handler(function, request.deserialize, response.serialize)


def service(server, name, handlers):
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))


# ---- OpenTelemetry's collector ----


class Collector:
    """Keeps the names of what was exported, by the header x-test of the export, and whole requests by the attribute "test"
    of their resource. A test whose name begins with `retry` is refused once; of one that begins with `partly` a span."""

    def __init__(self):
        self.lock = threading.Lock()
        self.kept = {}
        self.refused = set()
        self.whole = {}

    def keep_whole(self, request, resources, context):
        """Keeps a request, and returns its test."""
        attributes = {pair.key: pair.value.string_value for pair in resources[0].resource.attributes}
        test = attributes.get("test", "")
        with self.lock:
            refuse = test.startswith("retry") and test not in self.refused
            self.refused.add(test)
            if not refuse and test:
                text = base64.b64encode(request.SerializeToString()).decode()
                self.whole.setdefault(test, []).append([type(request).__name__, text])
        if refuse:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return test

    def taken_whole(self, request, context):
        with self.lock:
            return json.dumps(self.whole.pop(request.decode(), [])).encode()

    def keep(self, context, names):
        metadata = dict(context.invocation_metadata())
        test = metadata.get("x-test", "")
        with self.lock:
            refuse = test.startswith("retry") and test not in self.refused
            self.refused.add(test)
            if not refuse:
                self.kept.setdefault(test, []).append([list(names), metadata.get("grpc-encoding", "?"),
                                                       metadata.get("user-agent", "")])
        if refuse:
            soon = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=1_000_000))
            context.set_trailing_metadata((("google.rpc.retryinfo-bin", soon.SerializeToString()),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")

    def taken(self, request, context):
        with self.lock:
            return json.dumps(self.kept.pop(request.decode(), [])).encode()

    def add_to(self, server):
        collector = self

        class Traces(trace_service_pb2_grpc.TraceServiceServicer):
            def Export(self, request, context):
                test = collector.keep_whole(request, request.resource_spans, context)
                collector.keep(context, (span.name for resource in request.resource_spans
                                         for scope in resource.scope_spans for span in scope.spans))
                answer = trace_service_pb2.ExportTraceServiceResponse()
                if test.startswith("partly"):
                    answer.partial_success.rejected_spans = 1
                return answer

        class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
            def Export(self, request, context):
                collector.keep_whole(request, request.resource_metrics, context)
                collector.keep(context, (metric.name for resource in request.resource_metrics
                                         for scope in resource.scope_metrics for metric in scope.metrics))
                return metrics_service_pb2.ExportMetricsServiceResponse()

        class Logs(logs_service_pb2_grpc.LogsServiceServicer):
            def Export(self, request, context):
                collector.keep(context, (record.body.string_value for resource in request.resource_logs
                                         for scope in resource.scope_logs for record in scope.log_records))
                return logs_service_pb2.ExportLogsServiceResponse()

        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)
        service(server, "packages.Collector", {"Taken": grpc.unary_unary_rpc_method_handler(self.taken),
                                               "TakenWhole": grpc.unary_unary_rpc_method_handler(self.taken_whole)})


# ---- Pub/Sub ----


class PubSub:
    def __init__(self):
        self.topics = {}
        self.subscriptions = {}
        self.acknowledged = {}
        self.number = 0
        self.lock = threading.Lock()

    def create_topic(self, request, context):
        with self.lock:
            if request.name in self.topics:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Resource already exists: {request.name}")
            self.topics[request.name] = []
        return request

    def list_topics(self, request, context):
        """Pages of two."""
        with self.lock:
            names = sorted(name for name in self.topics if name.startswith(request.project))
        first = int(request.page_token or 0)
        more = str(first + 2) if first + 2 < len(names) else ""
        return pubsub.ListTopicsResponse(topics=[pubsub.Topic(name=name) for name in names[first:first + 2]],
                                         next_page_token=more)

    def create_subscription(self, request, context):
        with self.lock:
            if request.topic not in self.topics:
                context.abort(grpc.StatusCode.NOT_FOUND, f"Resource not found: {request.topic}")
            waiting = self.subscriptions[request.name] = queue.Queue()
            self.topics[request.topic].append(waiting)
            self.acknowledged[request.name] = queue.Queue()
        return request

    def publish(self, request, context):
        ids = []
        with self.lock:
            for message in request.messages:
                self.number += 1
                ids.append(str(self.number))
                message.message_id = ids[-1]
                for waiting in self.topics[request.topic]:
                    waiting.put(message)
        return pubsub.PublishResponse(message_ids=ids)

    def streaming_pull(self, requests, context):
        name = next(requests).subscription
        waiting, done = self.subscriptions[name], threading.Event()
        context.add_callback(lambda: (done.set(), waiting.put(None)))

        def read():
            for request in requests:
                self.acknowledge(pubsub.AcknowledgeRequest(subscription=name, ack_ids=request.ack_ids), context)

        threading.Thread(target=read, daemon=True).start()
        while (message := waiting.get()) is not None and not done.is_set():
            received = pubsub.ReceivedMessage(ack_id=f"ack-{message.message_id}", message=message)
            yield pubsub.StreamingPullResponse(received_messages=[received])

    def pull(self, request, context):
        messages = [self.subscriptions[request.subscription].get()]
        received = [pubsub.ReceivedMessage(ack_id=f"ack-{one.message_id}", message=one) for one in messages]
        return pubsub.PullResponse(received_messages=received)

    def acknowledge(self, request, context):
        for one in request.ack_ids:
            self.acknowledged[request.subscription].put(one)

    def taken(self, request, context):
        """Waits for the next acknowledgement of a subscription."""
        return self.acknowledged[request.decode()].get(timeout=60).encode()

    def add_to(self, server):
        empty = {"response_serializer": lambda _: b""}
        service(server, "google.pubsub.v1.Publisher", {
            "CreateTopic": unary(self.create_topic, pubsub.Topic, pubsub.Topic),
            "ListTopics": unary(self.list_topics, pubsub.ListTopicsRequest, pubsub.ListTopicsResponse),
            "Publish": unary(self.publish, pubsub.PublishRequest, pubsub.PublishResponse)})
        service(server, "google.pubsub.v1.Subscriber", {
            "CreateSubscription": unary(self.create_subscription, pubsub.Subscription, pubsub.Subscription),
            "Pull": unary(self.pull, pubsub.PullRequest, pubsub.PullResponse),
            "StreamingPull": grpc.stream_stream_rpc_method_handler(
                self.streaming_pull, pubsub.StreamingPullRequest.deserialize, pubsub.StreamingPullResponse.serialize),
            "Acknowledge": grpc.unary_unary_rpc_method_handler(
                self.acknowledge, pubsub.AcknowledgeRequest.deserialize, **empty),
            "ModifyAckDeadline": grpc.unary_unary_rpc_method_handler(
                lambda request, context: None, pubsub.ModifyAckDeadlineRequest.deserialize, **empty)})
        service(server, "packages.PubSub", {"Taken": grpc.unary_unary_rpc_method_handler(self.taken)})


# ---- Secret Manager ----


class Secrets:
    """A secret whose name ends with `flaky` is UNAVAILABLE at the first look."""

    def __init__(self):
        self.seen = set()

    def access(self, request, context):
        if request.name.endswith("nobody"):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Secret [{request.name}] not found")
        if "flaky" in request.name and request.name not in self.seen:
            self.seen.add(request.name)
            context.abort(grpc.StatusCode.UNAVAILABLE, "come again")
        routing = dict(context.invocation_metadata()).get("x-goog-request-params", "")
        return secret.AccessSecretVersionResponse(name=routing, payload=secret.SecretPayload(data=b"s3cret"))

    def list(self, request, context):
        """Pages of two, five in all."""
        first = int(request.page_token or 0)
        names = [f"{request.parent}/secrets/{number}" for number in range(first, min(first + 2, 5))]
        return secret.ListSecretsResponse(secrets=[secret.Secret(name=name) for name in names], total_size=5,
                                          next_page_token=str(first + 2) if first + 2 < 5 else "")

    def add_to(self, server):
        service(server, "google.cloud.secretmanager.v1.SecretManagerService", {
            "AccessSecretVersion": unary(
                self.access, secret.AccessSecretVersionRequest, secret.AccessSecretVersionResponse),
            "ListSecrets": unary(self.list, secret.ListSecretsRequest, secret.ListSecretsResponse)})


# ---- Qdrant ----


class Qdrant:
    def __init__(self):
        self.collections = {}

    def add_to(self, server):
        collections = self.collections

        class Health(qdrant_pb2_grpc.QdrantServicer):
            def HealthCheck(self, request, context):
                return qdrant.HealthCheckReply(title="qdrant", version="1.17.0")

        class Collections(collections_service_pb2_grpc.CollectionsServicer):
            def Create(self, request, context):
                if request.collection_name in collections:
                    context.abort(grpc.StatusCode.ALREADY_EXISTS, "it exists already")
                collections[request.collection_name] = {}
                return qdrant.CollectionOperationResponse(result=True)

            def List(self, request, context):
                return qdrant.ListCollectionsResponse(
                    collections=[qdrant.CollectionDescription(name=name) for name in sorted(collections)])

            def CollectionExists(self, request, context):
                exists = qdrant.CollectionExists(exists=request.collection_name in collections)
                return qdrant.CollectionExistsResponse(result=exists)

            def Delete(self, request, context):
                return qdrant.CollectionOperationResponse(
                    result=collections.pop(request.collection_name, None) is not None)

        class Points(points_service_pb2_grpc.PointsServicer):
            def Upsert(self, request, context):
                for point in request.points:
                    collections[request.collection_name][point.id.num] = point
                return qdrant.PointsOperationResponse(
                    result=qdrant.UpdateResult(operation_id=1, status=qdrant.UpdateStatus.Completed))

            def Query(self, request, context):
                if request.collection_name not in collections:
                    context.abort(grpc.StatusCode.NOT_FOUND, f"Collection `{request.collection_name}` doesn't exist!")
                wanted = vector_of(request.query.nearest)
                found = sorted(
                    ((sum(one * two for one, two in zip(vector_of(point.vectors.vector), wanted)), point)
                     for point in collections[request.collection_name].values()), key=lambda one: -one[0])
                return qdrant.QueryResponse(result=[
                    qdrant.ScoredPoint(id=point.id, payload=point.payload, score=score, version=1)
                    for score, point in found[:request.limit]])

        qdrant_pb2_grpc.add_QdrantServicer_to_server(Health(), server)
        collections_service_pb2_grpc.add_CollectionsServicer_to_server(Collections(), server)
        points_service_pb2_grpc.add_PointsServicer_to_server(Points(), server)


def vector_of(vector):
    return vector.dense.data or vector.data


# ---- etcd ----


class Etcd:
    def __init__(self):
        self.keys = {}
        self.revision = 1
        self.watches = []
        self.lock = threading.Lock()

    def head(self):
        return etcd.ResponseHeader(revision=self.revision)

    def put(self, request):
        with self.lock:
            self.revision += 1
            value = etcd.KeyValue(key=request.key, value=request.value, mod_revision=self.revision, version=1)
            self.keys[request.key] = value
            for key, queued in self.watches:
                if key == request.key:
                    queued.put(etcd.Event(type=etcd.Event.EventType.PUT, kv=value))
        return etcd.PutResponse(header=self.head())

    def find(self, request):
        with self.lock:
            end = request.range_end or request.key + b"\0"
            found = [value for key, value in sorted(self.keys.items()) if request.key <= key < end]
        return etcd.RangeResponse(header=self.head(), kvs=found, count=len(found))

    def add_to(self, server):
        store = self

        class Keys(etcd_services.KVServicer):
            def Put(self, request, context):
                return store.put(request)

            def Range(self, request, context):
                return store.find(request)

            def DeleteRange(self, request, context):
                gone = store.keys.pop(request.key, None)
                return etcd.DeleteRangeResponse(header=store.head(), deleted=int(gone is not None))

            def Txn(self, request, context):
                def holds(compare):
                    found = store.keys.get(compare.key)
                    return found is not None and found.value == compare.value

                succeeded = all(holds(compare) for compare in request.compare)
                answers = [etcd.ResponseOp(response_put=store.put(one.request_put)) if one.HasField("request_put")
                           else etcd.ResponseOp(response_range=store.find(one.request_range))
                           for one in (request.success if succeeded else request.failure)]
                return etcd.TxnResponse(header=store.head(), succeeded=succeeded, responses=answers)

        class Leases(etcd_services.LeaseServicer):
            def LeaseGrant(self, request, context):
                return etcd.LeaseGrantResponse(header=store.head(), ID=request.ID or 7, TTL=request.TTL)

            def LeaseKeepAlive(self, request_iterator, context):
                for request in request_iterator:
                    yield etcd.LeaseKeepAliveResponse(header=store.head(), ID=request.ID, TTL=30)

            def LeaseRevoke(self, request, context):
                return etcd.LeaseRevokeResponse(header=store.head())

        class Watches(etcd_services.WatchServicer):
            def Watch(self, request_iterator, context):
                queued = queue.Queue()
                context.add_callback(lambda: queued.put(None))

                def read():
                    for number, request in enumerate(request_iterator):
                        if request.HasField("create_request"):
                            store.watches.append((request.create_request.key, queued))
                            queued.put(etcd.WatchResponse(header=store.head(), watch_id=number, created=True))
                        else:
                            queued.put(etcd.WatchResponse(
                                header=store.head(), watch_id=request.cancel_request.watch_id, canceled=True))

                threading.Thread(target=read, daemon=True).start()
                while (one := queued.get()) is not None:
                    yield (one if isinstance(one, etcd.WatchResponse)
                           else etcd.WatchResponse(header=store.head(), watch_id=0, events=[one]))

        etcd_services.add_KVServicer_to_server(Keys(), server)
        etcd_services.add_LeaseServicer_to_server(Leases(), server)
        etcd_services.add_WatchServicer_to_server(Watches(), server)


def add_to(server):
    for each in (Collector(), PubSub(), Secrets(), Qdrant(), Etcd()):
        each.add_to(server)
