"""Thousands of small requests to one server, with as little work for the client as can be."""

import asyncio
import json

HEAD = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"


def flood(port, bodies, at_once):
    """Posts each body to /v1/completions over kept connections; the choices of the answers, in no order."""
    return asyncio.run(_flood(port, list(bodies), at_once))


async def _flood(port, bodies, at_once):
    choices = []
    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(bodies))):
            group.create_task(_work(port, bodies, choices))
    return choices


async def _work(port, bodies, choices):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while bodies:
        body = json.dumps(bodies.pop()).encode()
        writer.write(HEAD.format(size=len(body)).encode() + body)
        status, _, headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().partition("\r\n")
        size = next(int(h.partition(":")[2]) for h in headers.split("\r\n") if h.startswith("content-length"))
        answer = await reader.readexactly(size)
        assert " 200 " in status, answer
        choices.append(json.loads(answer)["choices"][0])
    writer.close()
