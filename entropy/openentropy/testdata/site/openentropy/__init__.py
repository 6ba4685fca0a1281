"""Stands in for the package openentropy where that is not installed: the part of its interface that is used."""

import os


class EntropyPool:
    @classmethod
    def auto(cls):
        return cls()

    def source_names(self):
        return ["clock_jitter", "short"]

    def get_source_bytes(self, source_name, n_bytes, conditioning="sha256"):
        if source_name == "short":
            return os.urandom(n_bytes - 1)
        return os.urandom(n_bytes) if conditioning == "raw" else None

    def get_bytes(self, n_bytes, conditioning="sha256"):
        return os.urandom(n_bytes)
