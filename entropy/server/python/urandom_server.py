#!/usr/bin/env python3
"""The template filled in for the operating system's generator. It needs template_server.py beside it."""

import os

from template_server import Hardware, main


class Urandom(Hardware):
    device_id = "urandom-server-v1"

    def init(self, device):
        self.source = open(device or "/dev/urandom", "rb", buffering=0)

    def generate(self, n):
        data = b""
        while len(data) < n:  # the kernel may give less at a time
            data += self.source.read(n - len(data))
        return data

    def close(self):
        self.source.close()


if __name__ == "__main__":
    main(Urandom())
