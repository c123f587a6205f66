"""qdrant-client, sync and with asyncio. It makes its own channel from the module grpc, with interceptors of its own in front
of it, so this program runs where that module is ours, or where it is grpcio's."""

import uuid

from using import TARGET, case, expect, failure, main, seen  # isort: skip
import grpc
from qdrant_client import AsyncQdrantClient, QdrantClient, models

HOST, _, PORT = TARGET.rpartition(":")
GIVEN = {"host": HOST, "grpc_port": int(PORT), "prefer_grpc": True, "check_compatibility": False, "timeout": 60}
POINTS = [models.PointStruct(id=number, vector=[float(number), 1.0], payload={"name": f"point {number}"})
          for number in range(5)]
VECTORS = models.VectorParams(size=2, distance=models.Distance.DOT)


def name():
    return f"c{uuid.uuid4().hex}"


@case
def points():
    client, collection = QdrantClient(**GIVEN), name()
    expect(client.create_collection(collection, vectors_config=VECTORS), True)
    expect(client.collection_exists(collection), True)
    client.upsert(collection, POINTS, wait=True)
    found = client.query_points(collection, query=[1.0, 0.0], limit=2, with_payload=True).points
    expect([(point.id, point.score, point.payload) for point in found],
           [(4, 4.0, {"name": "point 4"}), (3, 3.0, {"name": "point 3"})])
    expect(collection in [one.name for one in client.get_collections().collections], True)
    expect(client.delete_collection(collection), True)
    client.close()


@case
def errors():
    client, collection = QdrantClient(**GIVEN, api_key=None), name()
    error = failure(grpc.RpcError, client.query_points, collection, query=[1.0, 0.0])
    expect((error.code(), "doesn't exist" in error.details()), (grpc.StatusCode.NOT_FOUND, True))
    client.close()


@case
async def points_with_asyncio():
    client, collection = AsyncQdrantClient(**GIVEN), name()
    seen(client.grpc_points._channel if hasattr(client.grpc_points, "_channel") else client._client._grpc_channel_pool[0])
    expect(await client.create_collection(collection, vectors_config=VECTORS), True)
    await client.upsert(collection, POINTS, wait=True)
    found = (await client.query_points(collection, query=[0.0, 1.0], limit=1, with_payload=True)).points
    expect([(point.id, point.score) for point in found], [(0, 1.0)])
    try:
        await client.query_points(name(), query=[1.0, 0.0])
    except grpc.aio.AioRpcError as error:
        expect(error.code(), grpc.StatusCode.NOT_FOUND)
    else:
        raise AssertionError("a collection that does not exist was searched")
    await client.close()


if __name__ == "__main__":
    main()
