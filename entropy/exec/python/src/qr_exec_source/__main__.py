"""python -m qr_exec_source MODULE:CLASS [--config JSON]"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from typing import Any, Dict, List, Optional

from . import frames, host, loading

CLASSES = ("jit", "buffer", "unknown", "pool", "replay")

# The configuration may hold secrets, and everybody may see a process's arguments.
CONFIG_VARIABLE = "QR_EXEC_SOURCE_CONFIG"


def main(argv: Optional[List[str]] = None) -> int:
    """Runs the host and returns its exit status: 2 when the source can't be used."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.list:
        for point in sorted(loading.entry_points(), key=lambda point: point.name):
            print(f"{point.name}\t{point.value}")
        return 0
    if (args.source is None) == (args.entry_point is None):
        parser.error("give either MODULE:CLASS or --entry-point NAME")
    config = args.config
    if config is None and CONFIG_VARIABLE in os.environ:
        try:
            config = _object(os.environ[CONFIG_VARIABLE])
        except argparse.ArgumentTypeError as error:
            parser.error(f"{CONFIG_VARIABLE}: {error}")
    requests, replies = host.take_streams()
    # Only from here on: until there is a source, SIGTERM ends the process at once.
    try:
        source = loading.load(args.source, args.entry_point, config)
    except loading.LoadError as error:
        if error.__cause__ is not None:
            traceback.print_exception(type(error.__cause__), error.__cause__, error.__cause__.__traceback__)
        print(f"qr_exec_source: {error}", file=sys.stderr, flush=True)
        return 2
    return _run(source, requests, replies, args)


def _run(source: Any, requests: Any, replies: Any, args: argparse.Namespace) -> int:
    status = 0
    try:
        host.stop_on_sigterm()
        frames.write_hello(replies, host.hello(source, freshness=args.freshness, max_draw=args.max_draw))
        host.serve(source, requests, replies)
    except host.Stop:
        pass
    except BrokenPipeError:
        pass  # the gateway has gone
    except frames.FrameError as error:
        print(f"qr_exec_source: {error}", file=sys.stderr, flush=True)
        status = 1
    try:
        source.close()
    except host.Stop:
        pass
    except Exception:
        traceback.print_exc()
        status = 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="qr_exec_source", description="Hosts an entropy source written in Python for a gateway.")
    parser.add_argument("source", nargs="?", metavar="MODULE:CLASS", help="the class, or a function that makes a source")
    parser.add_argument("--entry-point", metavar="NAME", help=f"a source installed in the group {loading.GROUP}")
    parser.add_argument("--list", action="store_true", help="list the installed entry points")
    parser.add_argument("--config", type=_object, metavar="JSON", help=f"an object with the source's configuration; default: that in {CONFIG_VARIABLE}")
    parser.add_argument("--class", dest="freshness", choices=CLASSES, default="", help="when the bytes come to be")
    parser.add_argument("--max-draw", type=int, default=0, metavar="N", help="most bytes of one call; 0 is no limit")
    return parser


def _object(text: str) -> Dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("must be a JSON object")
    return value


if __name__ == "__main__":
    sys.exit(main())
