"""Hosts an entropy source written in Python as a child process.

A source is any object with ``name``, ``is_available``, ``get_random_bytes(n)`` and ``close()``; see README.md.
"""

from .frames import Status
from .host import SourceError, serve
from .loading import Config, LoadError, load

__all__ = ["Config", "LoadError", "SourceError", "Status", "load", "serve"]
