"""Finds a class or factory and makes a source of it."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Callable, List, Optional

GROUP = "qr_sampler.entropy_sources"

# What the host calls. The rest of the published interface is never used.
_NEEDED = ("get_random_bytes", "close")


class LoadError(Exception):
    """The source can't be used; the text says why and what to do."""


class Config(Mapping):  # type: ignore[type-arg]
    """The configuration a source gets: its keys can be read as attributes and as items."""

    def __init__(self, values: Optional[Mapping[str, Any]] = None) -> None:
        self._values = dict(values or {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"the configuration has no {name!r}; give it in --config") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Config({sorted(self._values)})"  # names alone: values may be secrets


def load(spec: Optional[str], entry_point: Optional[str], config: Optional[Mapping[str, Any]]) -> Any:
    """Returns a source made of MODULE:CLASS or of an entry point."""
    factory = _by_name(entry_point) if entry_point is not None else _by_path(spec or "")
    what = entry_point if entry_point is not None else spec
    try:
        source = instantiate(factory, config)
    except Exception as error:
        raise LoadError(f"make a source of {what}: {type(error).__name__}: {error}") from error
    missing = [name for name in _NEEDED if not callable(getattr(source, name, None))]
    if missing:
        raise LoadError(f"{what} is no entropy source: it has no method {' and no '.join(missing)}")
    return source


def instantiate(factory: Callable[..., Any], config: Optional[Mapping[str, Any]]) -> Any:
    """Calls a class or factory.

    One that takes a parameter named config, or one annotated as QRSamplerConfig, gets a Config as its first argument, as the
    reference does it; so does one that can't be called without one positional argument. Any other gets the keys of the
    configuration as keyword arguments, which is no arguments when there is none.
    """
    if _takes_config(factory):
        return factory(Config(config))
    return factory(**dict(config or {}))


def _takes_config(factory: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for p in parameters:
        if p.name == "config" and p.kind in positional:
            return True
        if "QRSamplerConfig" in getattr(p.annotation, "__name__", str(p.annotation)):
            return True
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    return len(required) == 1 and required[0].kind is inspect.Parameter.POSITIONAL_ONLY


def _by_path(spec: str) -> Callable[..., Any]:
    module, _, path = spec.partition(":")
    if not module or not path:
        raise LoadError(f"{spec!r} is not MODULE:CLASS")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise LoadError(f"import {module}: {type(error).__name__}: {error}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise LoadError(f"module {module} has no {path}") from None
    return _callable(found, spec)


def _by_name(name: str) -> Callable[..., Any]:
    points = entry_points()
    matching = [point for point in points if point.name == name]
    if not matching:
        known = ", ".join(sorted({point.name for point in points})) or "none"
        raise LoadError(f"no entry point {name!r} in the group {GROUP}; installed: {known}")
    if len({point.value for point in matching}) > 1:
        values = ", ".join(sorted({point.value for point in matching}))
        raise LoadError(f"entry point {name!r} is there more than once: {values}; name the class instead")
    try:
        return _callable(matching[0].load(), matching[0].value)
    except LoadError:
        raise
    except Exception as error:
        raise LoadError(f"load entry point {name!r}: {type(error).__name__}: {error}") from error


def entry_points() -> List[importlib.metadata.EntryPoint]:
    """Returns the entry points of the group."""
    found: Any = importlib.metadata.entry_points()
    if hasattr(found, "select"):
        return list(found.select(group=GROUP))
    return list(found.get(GROUP, []))


def _callable(found: Any, what: str) -> Callable[..., Any]:
    if not callable(found):
        raise LoadError(f"{what} is no class and no function")
    return found  # type: ignore[no-any-return]
