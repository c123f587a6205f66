"""aetcd, etcd's client for asyncio: keys, transactions, leases and watches. It makes its own channel from the module grpc,
so this program runs where that module is ours, or where it is grpcio's."""

import contextlib
import uuid

from using import TARGET, case, expect, main, seen  # isort: skip
import aetcd

HOST, _, PORT = TARGET.rpartition(":")


@contextlib.asynccontextmanager
async def connected():
    async with aetcd.Client(host=HOST, port=int(PORT), timeout=60) as client:
        seen(client.channel)
        yield client


def key():
    return f"/{uuid.uuid4()}/".encode()


@case
async def keys():
    async with connected() as client:
        here = key()
        await client.put(here + b"one", b"1")
        await client.put(here + b"two", b"2")
        expect((await client.get(here + b"one")).value, b"1")
        expect(await client.get(here + b"three"), None)
        expect([(one.key, one.value) for one in await client.get_prefix(here)], [(here + b"one", b"1"), (here + b"two", b"2")])
        expect((await client.delete(here + b"one")) is not None, True, "deleted")
        expect(await client.get(here + b"one"), None)


@case
async def a_transaction():
    async with connected() as client:
        here = key()
        await client.put(here, b"old")
        write = client.transactions.put(here, b"new")
        succeeded, _ = await client.transaction(
            compare=[client.transactions.value(here) == b"old"], success=[write], failure=[])
        expect((succeeded, (await client.get(here)).value), (True, b"new"))
        succeeded, _ = await client.transaction(
            compare=[client.transactions.value(here) == b"old"], success=[], failure=[client.transactions.put(here, b"no")])
        expect((succeeded, (await client.get(here)).value), (False, b"no"))


@case
async def a_lease():
    async with connected() as client:
        lease = await client.lease(30)
        expect((await lease.refresh()).TTL, 30)
        await lease.revoke()


@case
async def a_watch():
    async with connected() as client:
        here = key()
        watch = await client.watch(here)
        for value in (b"1", b"2", b"3"):
            await client.put(here, value)
        found = []
        async for event in watch:
            found.append(event.kv.value)
            if len(found) == 3:
                await watch.cancel()
                break
        expect(found, [b"1", b"2", b"3"])


if __name__ == "__main__":
    main()
