"""Messages that are bytes: the service penstock.Echo without a transport, and connectrpc's codec for such messages."""


class Echo:
    """Sends messages back unchanged. `value` returns a request header; a subclass knows where it is."""

    def value(self, context, name):
        raise NotImplementedError

    async def unary(self, ask, context):
        return ask

    async def server_stream(self, ask, context):
        for _ in range(int(self.value(context, "x-repeat") or 1)):
            yield ask

    async def client_stream(self, asks, context):
        return b"".join([ask async for ask in asks])

    async def bidi(self, asks, context):
        async for ask in asks:
            yield ask


class Codec:
    """Passes the bytes of messages unchanged, as the encoding with this name."""

    def __init__(self, name):
        self.label = name

    def name(self):
        return self.label

    def encode(self, message):
        return bytes(message)

    def decode(self, data, _):
        return bytes(data)
