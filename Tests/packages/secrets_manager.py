"""google-cloud-secret-manager, with a channel that is given to it: unary calls, routing headers, retries and pages, sync and
with asyncio."""

import uuid

from using import aio_channel, case, channel, expect, failure, main  # isort: skip
import grpc
from google.api_core import exceptions
from google.cloud import secretmanager_v1
from google.cloud.secretmanager_v1.services.secret_manager_service import transports

PARENT = "projects/tests"


def client(opened):
    transport = transports.SecretManagerServiceGrpcTransport(channel=opened)
    return secretmanager_v1.SecretManagerServiceClient(transport=transport)


def aio_client(opened):
    transport = transports.SecretManagerServiceGrpcAsyncIOTransport(channel=opened)
    return secretmanager_v1.SecretManagerServiceAsyncClient(transport=transport)


def version(secret):
    return f"{PARENT}/secrets/{secret}/versions/1"


@case
def a_secret():
    with channel() as opened:
        answer = client(opened).access_secret_version(name=version("one"), timeout=60)
        expect((answer.payload.data, answer.name), (b"s3cret", "name=projects/tests/secrets/one/versions/1"))


@case
def errors():
    with channel() as opened:
        error = failure(exceptions.NotFound, client(opened).access_secret_version, name=f"{PARENT}/nobody")
        expect(error.grpc_status_code, grpc.StatusCode.NOT_FOUND)
        expect(isinstance(error.errors[0], grpc.RpcError), True, "the cause is of grpcio's class")


@case
def its_own_retries():
    with channel() as opened:
        answer = client(opened).access_secret_version(name=version(f"flaky-{uuid.uuid4()}"))
        expect(answer.payload.data, b"s3cret")


@case
def pages():
    with channel() as opened:
        found = client(opened).list_secrets(parent=PARENT)
        expect([secret.name[-1] for secret in found], ["0", "1", "2", "3", "4"])


@case
async def all_of_it_with_asyncio():
    async with aio_channel() as opened:
        made = aio_client(opened)
        expect((await made.access_secret_version(name=version("one"), timeout=60)).payload.data, b"s3cret")
        expect((await made.access_secret_version(name=version(f"flaky-{uuid.uuid4()}"))).payload.data, b"s3cret")
        expect([secret.name[-1] async for secret in await made.list_secrets(parent=PARENT)], ["0", "1", "2", "3", "4"])
        try:
            await made.access_secret_version(name=f"{PARENT}/nobody")
        except exceptions.NotFound as error:
            expect(error.grpc_status_code, grpc.StatusCode.NOT_FOUND)
        else:
            raise AssertionError("nobody's secret")


if __name__ == "__main__":
    main()
