"""A bare application on the server's own HTTP stack: what the stack costs when nothing is behind it.

    python bench/echo.py PORT

Decodes the JSON body and answers a small constant one.
"""

import asyncio
import sys

import msgspec
import uvloop

from topics.server.http import Listener, Request

ANSWER = b'{"first_seq":1,"last_seq":1,"count":1,"created":false,"performance":{"server_total_ms":0.031}}'


class Echo:
    """Answers every request with the same body, once its JSON was read."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder().decode

    def handle(self, request: Request) -> None:
        if request.body:
            try:
                self._decode(request.body)
            except msgspec.DecodeError:
                request.respond(400, b'{"error":{"code":"invalid_request","message":"not JSON"}}')
                return
        request.respond(200, ANSWER)


async def serve(port: int) -> None:
    listener = Listener(Echo())
    host, bound_port = await listener.start("127.0.0.1", port)
    print(f"{host}:{bound_port}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await listener.stop(grace=1)


if __name__ == "__main__":
    try:
        uvloop.run(serve(int(sys.argv[1])))
    except KeyboardInterrupt:
        pass
