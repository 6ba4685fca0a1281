"""Answers requests from a source."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from typing import Any, BinaryIO, Dict, Optional, Tuple

from . import frames
from .frames import Status


class SourceError(Exception):
    """What a source may raise to say more than that it failed."""

    def __init__(self, message: str, status: Status = Status.FAILED) -> None:
        super().__init__(message)
        self.status = status


class Stop(BaseException):
    """The host was told to end. It is no Exception, so a source's own handlers let it pass."""


def take_streams() -> Tuple[BinaryIO, BinaryIO]:
    """Takes standard input and output for the frames.

    What anything else prints, also a C library or a child process, goes to standard error, and what it reads is empty.
    """
    sys.stdout.flush()
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout = sys.stderr
    ours = (requests.fileno(), replies.fileno())  # numbers: Python 3.9 crashes at its end when a hook holds files
    os.register_at_fork(after_in_child=lambda: _let_go(ours))
    return requests, _Whole(replies)  # type: ignore[return-value]


def _let_go(descriptors: Tuple[int, ...]) -> None:
    """A forked copy of the host must not answer in its name."""
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            pass  # the host had closed it


class _Whole:
    """Writes all that it is given: a raw stream may write less."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._stream.write(view) :]

    def flush(self) -> None:
        """Nothing is kept back."""


def stop_on_sigterm() -> None:
    """Makes the first SIGTERM raise Stop wherever the source is; the second ends the process."""

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Stop

    signal.signal(signal.SIGTERM, stop)


def hello(source: Any, *, freshness: str, max_draw: int) -> Dict[str, Any]:
    """What the host says of its source."""
    return {
        "name": name_of(source),
        "class": freshness,
        "max_draw": max_draw,
        "available": available(source),
        "details": {"python": sys.version.split()[0], "source_class": type(source).__qualname__},
    }


def name_of(source: Any) -> str:
    """Returns the source's name, whether it is an attribute or a method."""
    return str(_value(getattr(source, "name", None)) or type(source).__name__)[:200]


def available(source: Any) -> bool:
    """Reports whether the source says that it is available; one that says nothing is."""
    return bool(_value(getattr(source, "is_available", True)))


def _value(attribute: Any) -> Any:
    return attribute() if callable(attribute) else attribute


def serve(source: Any, requests: BinaryIO, replies: BinaryIO) -> None:
    """Answers requests until their stream ends."""
    pid = os.getpid()
    while True:
        request = frames.read_request(requests)
        if request is None:
            return
        payload, error = _draw(source, request.size)
        if os.getpid() != pid:
            os._exit(70)  # the source forked, and this is the copy
        if error is not None:
            frames.write_error(replies, request.sequence, error.status, str(error))
        else:
            frames.write_reply(replies, request.sequence, payload, device=_device(source), time_ns=time.time_ns() if request.size else 0)


def _draw(source: Any, count: int) -> Tuple[bytes, Optional[SourceError]]:
    try:
        if count == 0:
            if not available(source):
                raise SourceError(f"{name_of(source)} is not available", Status.UNAVAILABLE)
            return b"", None
        return _exactly(source.get_random_bytes(count), count), None
    except SourceError as error:
        return b"", error
    except Exception as error:
        traceback.print_exc()
        return b"", SourceError(f"{type(error).__name__}: {error}")


def _exactly(data: Any, count: int) -> bytes:
    """Returns data, if it is count bytes."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise SourceError(f"get_random_bytes({count}) returned {type(data).__name__}, not bytes", Status.BROKEN)
    whole = bytes(data)
    if len(whole) != count:
        raise SourceError(f"get_random_bytes({count}) returned {len(whole)} bytes", Status.BROKEN)
    return whole


def _device(source: Any) -> str:
    try:
        return str(_value(getattr(source, "device_id", "")) or "")
    except Exception:
        return ""
