"""The frames between a gateway and its child. All numbers are little-endian.

hello    "QRXH", version u32, length u32, JSON
request  "QRXQ", sequence u64, count u32
reply    "QRXR", sequence u64, status u16, device length u16, length u32, time i64 (ns since 1970, 0: unknown), device, payload
"""

from __future__ import annotations

import enum
import json
import struct
from typing import Any, BinaryIO, Mapping, NamedTuple, Optional

VERSION = 1
MAX_MESSAGE = 4096
MAX_DEVICE = 256

_HELLO = struct.Struct("<4sII")
_REQUEST = struct.Struct("<4sQI")
_REPLY = struct.Struct("<4sQHHIq")


class Status(enum.IntEnum):
    """What a reply says."""

    OK = 0
    FAILED = 1  # an error; the source may be asked again
    REFUSED = 2  # asking again is useless
    QUOTA = 3  # the source's limit is used up for now
    BROKEN = 4  # the source gave something else than it was asked for
    UNAVAILABLE = 5  # the source says that it is not available now


class Request(NamedTuple):
    """A request for size bytes; 0 asks whether the source is available."""

    sequence: int
    size: int


class FrameError(Exception):
    """The gateway wrote something that is no request."""


def read_request(stream: BinaryIO) -> Optional[Request]:
    """Returns the next request, or None when the gateway has closed the stream."""
    data = _read(stream, _REQUEST.size)
    if not data:
        return None
    if len(data) < _REQUEST.size:
        raise FrameError(f"the input ended in the middle of a request, after {len(data)} bytes")
    magic, sequence, size = _REQUEST.unpack(data)
    if magic != b"QRXQ":
        raise FrameError(f"no request frame: {magic!r}")
    return Request(sequence, size)


def write_hello(stream: BinaryIO, body: Mapping[str, Any]) -> None:
    """Writes the first frame."""
    text = json.dumps(body).encode()
    stream.write(_HELLO.pack(b"QRXH", VERSION, len(text)) + text)
    stream.flush()


def write_reply(stream: BinaryIO, sequence: int, payload: bytes, *, device: str = "", time_ns: int = 0) -> None:
    """Writes a reply with bytes."""
    name = _cut(device, MAX_DEVICE)
    head = _REPLY.pack(b"QRXR", sequence, Status.OK, len(name), len(payload), time_ns)
    stream.write(head + name + payload)
    stream.flush()


def write_error(stream: BinaryIO, sequence: int, status: Status, message: str) -> None:
    """Writes a reply that says no."""
    text = _cut(message or status.name.lower(), MAX_MESSAGE)
    stream.write(_REPLY.pack(b"QRXR", sequence, status, 0, len(text), 0) + text)
    stream.flush()


def _cut(text: str, limit: int) -> bytes:
    return text.encode(errors="replace")[:limit].decode(errors="ignore").encode()


def _read(stream: BinaryIO, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            break
        data += part
    return data
