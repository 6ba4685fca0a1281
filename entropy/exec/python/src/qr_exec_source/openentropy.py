"""A source that reads one noise source of the openentropy package, or its pool."""

from __future__ import annotations

from typing import Any, Optional


class OpenEntropy:
    """Asks the package for its bytes in each call; with conditioning raw and a named source they are measured then."""

    def __init__(self, source: str = "", conditioning: str = "raw") -> None:
        import openentropy  # type: ignore[import-not-found]  # only here: the host does without it

        self._pool: Any = openentropy.EntropyPool.auto()
        self._source = source
        self._conditioning = conditioning
        self.device_id = source
        known = list(self._pool.source_names())
        if source and source not in known:
            raise ValueError(f"openentropy has no source {source!r} here; want one of {', '.join(known)}")

    @property
    def name(self) -> str:
        return "openentropy"

    @property
    def is_available(self) -> bool:
        return len(self._pool.source_names()) > 0

    def get_random_bytes(self, n: int) -> Optional[bytes]:
        data: Optional[bytes]
        if self._source:
            # None when the source has gone; the host refuses it, and anything shorter than n.
            data = self._pool.get_source_bytes(self._source, n, self._conditioning)
        else:
            data = self._pool.get_bytes(n, self._conditioning)
        return data

    def close(self) -> None:
        self._pool = None
