"""References in Python: what the layers of a Python gateway cost, with next to no gateway in them.

  reference.py raw    PORT UP1 UP2    uvloop and httptools on both sides, bytes passed through: the floor
  reference.py asgi   PORT UP1 UP2    uvicorn, a bare ASGI app, aiohttp as the client
  reference.py django PORT UP1 UP2    uvicorn, Django's ASGI handler with one async view, aiohttp as the client
  reference.py channels PORT UP1 UP2  uvicorn, Channels' router with one AsyncHttpConsumer, aiohttp as the client

They only forward (round robin, no retries, no health checks, no auth): none is a gateway to use.
"""

import asyncio
import itertools
import sys
from collections import deque
from urllib.parse import urlsplit

MODE, PORT, UPS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
HOP = {b"host", b"connection", b"content-length", b"transfer-encoding", b"keep-alive", b"date", b"server"}


# ---- raw ----------------------------------------------------------------------------------------


class Upstream(asyncio.Protocol):
    """A kept-alive connection to one worker; what arrives goes on to the client as it is."""

    def __init__(self, pool):
        self.pool, self.client, self.transport = pool, None, None

    def connection_made(self, transport):
        self.transport = transport

    def send(self, client, data):
        import httptools

        self.client, self.parser, self.whole = client, httptools.HttpResponseParser(self), False
        self.transport.write(data)

    def data_received(self, data):
        self.parser.feed_data(data)
        self.client.transport.write(data)
        if self.whole:
            client, self.client = self.client, None
            self.pool.append(self)
            client.answered()

    def on_message_complete(self):
        self.whole = True

    def connection_lost(self, exc):
        self.transport = None
        if self.client:
            self.client.transport.close()
        elif self in self.pool:
            self.pool.remove(self)


class Client(asyncio.Protocol):
    pools = [(urlsplit(u).hostname, urlsplit(u).port, deque()) for u in UPS]
    turn = itertools.cycle(pools)

    def connection_made(self, transport):
        import httptools

        self.transport, self.parser = transport, httptools.HttpRequestParser(self)
        self.url, self.headers, self.body = b"", [], []

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_url(self, url):
        self.url += url

    def on_header(self, name, value):
        if name.lower() not in HOP:
            self.headers.append(b"%b: %b\r\n" % (name, value))

    def on_body(self, body):
        self.body.append(body)

    def on_message_complete(self):
        host, port, pool = next(self.turn)
        body = b"".join(self.body)
        head = b"%b %b HTTP/1.1\r\nHost: %b:%d\r\n%bContent-Length: %d\r\n\r\n" % (
            self.parser.get_method(), self.url, host.encode(), port, b"".join(self.headers), len(body),
        )  # fmt: skip
        self.url, self.headers, self.body = b"", [], []
        if pool:
            pool.pop().send(self, head + body)
        else:
            asyncio.get_running_loop().create_task(self.connect(host, port, pool, head + body))

    async def connect(self, host, port, pool, data):
        loop = asyncio.get_running_loop()
        try:
            _, up = await loop.create_connection(lambda: Upstream(pool), host, port)
            up.send(self, data)
        except OSError:
            self.transport.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    def answered(self):
        pass


async def raw():
    server = await asyncio.get_running_loop().create_server(Client, "127.0.0.1", PORT, backlog=4096)
    await server.serve_forever()


# ---- asgi ---------------------------------------------------------------------------------------

turn = itertools.cycle(UPS)
session = None


async def client_session():
    global session
    if session is None:
        import aiohttp

        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
    return session


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = {k.decode(): v.decode() for k, v in scope["headers"] if k not in HOP}
    s = await client_session()
    async with s.request(scope["method"], next(turn) + scope["path"], data=body, headers=headers) as r:
        out = [(k.lower().encode(), v.encode()) for k, v in r.headers.items() if k.lower().encode() not in HOP]
        if "content-length" in r.headers:
            data = await r.read()
            out.append((b"content-length", str(len(data)).encode()))
            await send({"type": "http.response.start", "status": r.status, "headers": out})
            await send({"type": "http.response.body", "body": data})
            return
        await send({"type": "http.response.start", "status": r.status, "headers": out})
        async for chunk in r.content.iter_any():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


# ---- django -------------------------------------------------------------------------------------


def django_app():
    import django
    from django.conf import settings
    from django.http import HttpResponse, StreamingHttpResponse
    from django.urls import re_path

    async def view(request):
        s = await client_session()
        headers = {k: v for k, v in request.headers.items() if k.lower().encode() not in HOP}
        r = await s.request(request.method, next(turn) + request.path, data=request.body, headers=headers)
        kind = r.headers.get("content-type")
        if "content-length" in r.headers:
            data = await r.read()
            return HttpResponse(data, status=r.status, content_type=kind)

        async def stream():
            async with r:
                async for chunk in r.content.iter_any():
                    yield chunk

        return StreamingHttpResponse(stream(), status=r.status, content_type=kind)

    urls = type(sys)("reference_urls")
    urls.urlpatterns = [re_path("", view)]
    sys.modules["reference_urls"] = urls
    settings.configure(
        ROOT_URLCONF="reference_urls",
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=[],
        SECRET_KEY="reference",
        DATA_UPLOAD_MAX_MEMORY_SIZE=None,
        LOGGING_CONFIG=None,
        USE_I18N=False,
    )
    django.setup()
    from django.core.asgi import get_asgi_application

    return get_asgi_application()


# ---- channels -----------------------------------------------------------------------------------


def channels_app():
    import django
    from django.conf import settings

    settings.configure(SECRET_KEY="reference", LOGGING_CONFIG=None, USE_I18N=False)
    django.setup()
    from channels.generic.http import AsyncHttpConsumer
    from channels.routing import ProtocolTypeRouter, URLRouter
    from django.urls import re_path

    class Forward(AsyncHttpConsumer):
        async def handle(self, body):
            headers = {k.decode(): v.decode() for k, v in self.scope["headers"] if k not in HOP}
            s = await client_session()
            url = next(turn) + self.scope["path"]
            async with s.request(self.scope["method"], url, data=body, headers=headers) as r:
                out = [(k.lower().encode(), v.encode()) for k, v in r.headers.items() if k.lower().encode() not in HOP]
                if "content-length" in r.headers:
                    data = await r.read()
                    out.append((b"content-length", str(len(data)).encode()))
                    await self.send_response(r.status, data, headers=out)
                    return
                await self.send_headers(status=r.status, headers=out)
                async for chunk in r.content.iter_any():
                    await self.send_body(chunk, more_body=True)
                await self.send_body(b"")

    return ProtocolTypeRouter({"http": URLRouter([re_path("", Forward.as_asgi())])})


if __name__ == "__main__":
    if MODE == "raw":
        import uvloop

        uvloop.run(raw())
    else:
        import uvicorn

        app = {"asgi": lambda: asgi, "django": django_app, "channels": channels_app}[MODE]()
        uvicorn.run(
            app, host="127.0.0.1", port=PORT, log_level="warning", access_log=False, lifespan="off", backlog=4096
        )
