"""google-cloud-pubsub, with a channel that is given to it: unary calls, pages, a stream in both directions with
acknowledgements, batches in the background, and its asyncio clients."""

import queue
import uuid

from using import TARGET, aio_channel, case, channel, expect, failure, main, sync  # isort: skip
import grpc
from google.api_core import bidi, bidi_async, exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import pubsub_v1
from google.pubsub_v1.services import publisher, subscriber
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport, PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport, SubscriberGrpcTransport
from google.pubsub_v1.types import StreamingPullRequest


def name(kind, project="tests"):
    return f"projects/{project}/{kind}/{kind[0]}{uuid.uuid4().hex}"


def topic_and_subscription(opened):
    topic, subscription = name("topics"), name("subscriptions")
    client = publisher.PublisherClient(transport=PublisherGrpcTransport(channel=opened))
    client.create_topic(name=topic)
    subscribing = subscriber.SubscriberClient(transport=SubscriberGrpcTransport(channel=opened))
    subscribing.create_subscription(name=subscription, topic=topic)
    return topic, subscription


def acknowledged(opened, subscription):
    return opened.unary_unary("/packages.PubSub/Taken")(subscription.encode(), timeout=60).decode()


@case
def a_stream_of_messages():
    """The whole of the library: batches in the background, a stream that is consumed on threads, leases, acks."""
    with channel() as opened:
        topic, subscription = topic_and_subscription(opened)
        publishing = pubsub_v1.PublisherClient(
            transport=PublisherGrpcTransport(channel=opened), batch_settings=pubsub_v1.types.BatchSettings(max_messages=10))
        subscribing = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=opened))
        received = queue.Queue()

        def take(message):
            received.put(message.data)
            message.ack()

        pull = subscribing.subscribe(subscription, callback=take)
        sent = [publishing.publish(topic, b"%d" % number, kind="test") for number in range(100)]
        ids = {future.result(timeout=60) for future in sent}
        expect(sorted(received.get(timeout=60) for _ in sent), sorted(b"%d" % number for number in range(100)))
        expect({acknowledged(opened, subscription) for _ in sent}, {f"ack-{one}" for one in ids}, "acknowledged")
        pull.cancel()
        pull.result(timeout=60)
        publishing.stop()


@case
def unary_calls_and_errors():
    with channel() as opened:
        client = publisher.PublisherClient(transport=PublisherGrpcTransport(channel=opened))
        topic = name("topics")
        expect(client.create_topic(name=topic).name, topic)
        error = failure(exceptions.AlreadyExists, client.create_topic, name=topic)
        expect((error.grpc_status_code, "already exists" in error.message), (grpc.StatusCode.ALREADY_EXISTS, True))
        subscribing = subscriber.SubscriberClient(transport=SubscriberGrpcTransport(channel=opened))
        failure(exceptions.NotFound, subscribing.create_subscription, name=name("subscriptions"), topic=name("topics"))


@case
def pages():
    project = uuid.uuid4().hex
    with channel() as opened:
        client = publisher.PublisherClient(transport=PublisherGrpcTransport(channel=opened))
        made = sorted(client.create_topic(name=name("topics", project)).name for _ in range(5))
        found = client.list_topics(project=f"projects/{project}")
        expect([len(page.topics) for page in found.pages], [2, 2, 1])
        expect([topic.name for topic in client.list_topics(project=f"projects/{project}")], made)


@case
def a_bidirectional_stream_by_hand():
    with channel() as opened:
        topic, subscription = topic_and_subscription(opened)
        client = subscriber.SubscriberClient(transport=SubscriberGrpcTransport(channel=opened))
        rpc = bidi.BidiRpc(client.streaming_pull,
                           initial_request=StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=10))
        rpc.open()
        publishing = publisher.PublisherClient(transport=PublisherGrpcTransport(channel=opened))
        publishing.publish(topic=topic, messages=[{"data": b"one"}, {"data": b"two"}])
        for data in (b"one", b"two"):
            received = rpc.recv().received_messages[0]
            expect(received.message.data, data)
            rpc.send(StreamingPullRequest(ack_ids=[received.ack_id]))
            expect(acknowledged(opened, subscription), received.ack_id)
        expect(rpc.is_active, True, "active")
        rpc.close()
        expect(rpc.is_active, False, "active after the close")


@case
def a_channel_of_its_own():
    """The transport makes the channel by the function that it is given."""
    def make(host, **_):
        return sync.insecure_channel(host)

    transport = PublisherGrpcTransport(host=TARGET, channel=make, credentials=AnonymousCredentials())
    with publisher.PublisherClient(transport=transport) as client:
        topic = name("topics")
        expect(client.create_topic(name=topic).name, topic)


@case
async def with_asyncio():
    async with aio_channel() as opened:
        client = publisher.PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=opened))
        project = uuid.uuid4().hex
        topics = sorted([(await client.create_topic(name=name("topics", project))).name for _ in range(3)])
        try:
            await client.create_topic(name=topics[0])
        except exceptions.AlreadyExists as error:
            expect(error.grpc_status_code, grpc.StatusCode.ALREADY_EXISTS)
        else:
            raise AssertionError("the topic was made twice")
        found = await client.list_topics(project=f"projects/{project}")
        expect([topic.name async for topic in found], topics)


async def clients_with_asyncio(opened):
    """The client of a new topic, and that of a new subscription to it; and the names of both."""
    topic, subscription = name("topics"), name("subscriptions")
    publishing = publisher.PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=opened))
    subscribing = subscriber.SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=opened))
    await publishing.create_topic(name=topic)
    await subscribing.create_subscription(name=subscription, topic=topic)
    return publishing, subscribing, topic, subscription


@case
async def a_stream_with_asyncio():
    async with aio_channel() as opened:
        publishing, subscribing, topic, subscription = await clients_with_asyncio(opened)
        more = queue.SimpleQueue()

        async def requests():
            yield StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=10)

        stream = await subscribing.streaming_pull(requests())
        expect((await publishing.publish(topic=topic, messages=[{"data": b"one"}])).message_ids != [], True)
        async for response in stream:
            more.put(response.received_messages[0].message.data)
            break
        expect(more.get(), b"one")
        expect(stream.cancel(), True, "cancelled")


@case
async def a_bidirectional_stream_by_hand_with_asyncio():
    async with aio_channel() as opened:
        publishing, subscribing, topic, subscription = await clients_with_asyncio(opened)
        first = StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=10)
        rpc = bidi_async.AsyncBidiRpc(subscribing.streaming_pull, initial_request=first)
        await rpc.open()
        await publishing.publish(topic=topic, messages=[{"data": b"one"}, {"data": b"two"}])
        for data in (b"one", b"two"):
            received = (await rpc.recv()).received_messages[0]
            expect(received.message.data, data)
            await rpc.send(StreamingPullRequest(ack_ids=[received.ack_id]))
            taken = await opened.unary_unary("/packages.PubSub/Taken")(subscription.encode(), timeout=60)
            expect(taken.decode(), received.ack_id)
        expect(rpc.is_active, True, "active")
        await rpc.close()
        expect(rpc.is_active, False, "active after the close")


if __name__ == "__main__":
    main()
