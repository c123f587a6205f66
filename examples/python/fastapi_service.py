#!/usr/bin/env python3
"""A service of FastAPI that answers by calling another server, on the loop that runs, with one channel for all requests.
An interceptor hands on the identity of the request, and an error of the call becomes a status of HTTP.

    fastapi_service.py [TARGET]      serves on a free port, asks itself for three pages, and ends

Needs fastapi and uvicorn. To serve for good: `TARGET=localhost:50051 uvicorn fastapi_service:app`.
"""

import asyncio
import contextlib
import contextvars
import os
import sys
import urllib.error
import urllib.request

import fastapi
import penstock.aio
import uvicorn

REQUEST_ID = contextvars.ContextVar("REQUEST_ID", default="")
HTTP_STATUS = {
    penstock.StatusCode.NOT_FOUND: 404,
    penstock.StatusCode.DEADLINE_EXCEEDED: 504,
    penstock.StatusCode.UNAVAILABLE: 503,
}


class Identity(penstock.Interceptor):
    """Runs in the context of the request for which the call is made."""

    def on_start(self, hop):
        hop.metadata["x-request-id"] = REQUEST_ID.get()


@contextlib.asynccontextmanager
async def lifespan(app):
    async with penstock.aio.Channel(os.environ["TARGET"], tls=False, interceptors=[Identity()]) as channel:
        app.state.echo = channel.unary_unary("/penstock.Echo/Unary")
        yield


app = fastapi.FastAPI(lifespan=lifespan)


@app.middleware("http")
async def identify(request, call_next):
    REQUEST_ID.set(request.headers.get("x-request-id", ""))
    return await call_next(request)


@app.exception_handler(penstock.RpcError)
async def refused(request, error):
    return fastapi.responses.PlainTextResponse(error.details(), HTTP_STATUS.get(error.code(), 502))


@app.get("/hello/{name}")
async def hello(name: str, status: str = "0"):
    # The peer ends the call with the status that x-status asks for, and returns the field that x-echo-metadata names.
    asked = {"x-status": status, "x-echo-metadata": "1"}
    call = app.state.echo(name.encode(), timeout=5, metadata=asked)
    reply = await call
    return {"reply": reply.decode(), "request": (await call.trailing_metadata()).get("seen-x-request-id")}


def page(address, **fields):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=fields), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def main():
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    pages = []
    for path, identity in (("you", "one"), ("me", "two"), ("nobody?status=5", "three")):
        address = f"http://127.0.0.1:{port}/hello/{path}"
        pages.append(await asyncio.to_thread(page, address, **{"x-request-id": identity}))
        print(*pages[-1])
    server.should_exit = True
    await serving
    return pages


if __name__ == "__main__":
    os.environ["TARGET"] = sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"
    pages = asyncio.run(main())
    if [status for status, _ in pages] != [200, 200, 404] or '"request":"two"' not in pages[1][1]:
        sys.exit("the service has answered otherwise")
