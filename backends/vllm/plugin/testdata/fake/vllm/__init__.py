"""A stand-in for vLLM by shape: what the plugin sees of it, and no more."""

__version__ = "0.32.0"
