"""Stubs of what Open WebUI is to a filter: its loader, its valves store, its event emitter. QR_PARAMETERS is the parameter table as JSON."""

import copy
import json
import os
import pathlib
import re
import sys
import types

import pytest

HERE = pathlib.Path(__file__).parent
FILES = HERE.parent
TABLE = json.loads(pathlib.Path(os.environ["QR_PARAMETERS"]).read_text())
FIELDS = {f["key"]: f for f in TABLE if f["per_request"]}
SWITCHES = ("enabled", "status", "warnings", "users_may_override", "models", "priority")

# An entry of Open WebUI's model list as it makes one of what the gateway says.
OURS = {"id": "smollm2", "name": "SmolLM2", "owned_by": "openai", "openai": {"id": "smollm2", "qr": {"state": "ready"}}, "qr": {"state": "ready"}}
OTHER = {"id": "gpt-4o", "name": "gpt-4o", "owned_by": "openai", "openai": {"id": "gpt-4o"}}


def frontmatter(content):
    """What Open WebUI reads of a function's head."""
    found, lines = {}, content.splitlines()
    if not lines or lines[0].strip() != '"""':
        return found
    for line in lines[1:]:
        if '"""' in line:
            break
        match = re.match(r"^\s*([a-z_]+):\s*(.*)\s*$", line, re.IGNORECASE)
        if match:
            found[match[1].strip()] = match[2].strip()
    return found


def load(content):
    """Runs a function as Open WebUI does: imports rewritten, in a module that is gone from sys.modules once it is made."""
    for word in ("utils", "apps", "main", "config"):
        content = content.replace("from " + word, "from open_webui." + word)
    module = types.ModuleType("function_qr_gateway_filter")
    sys.modules[module.__name__] = module
    try:
        exec(content, module.__dict__)
        return module
    finally:
        sys.modules.pop(module.__name__, None)


@pytest.fixture(scope="session")
def functions():
    return json.loads((FILES / "qr_gateway_filter.json").read_text())


@pytest.fixture(scope="session")
def module(functions):
    return load(functions[0]["content"])


@pytest.fixture
def make(module):
    """Makes a filter with these stored valves, as Open WebUI does before each call."""

    def made(**valves):
        f = module.Filter()
        f.valves = f.Valves(**valves)
        return f

    return made


@pytest.fixture
def user(module):
    """Makes what a hook gets as __user__."""

    def made(**valves):
        return {"id": "u1", "role": "user", "valves": module.Filter.UserValves(**valves)}

    return made


def chat(**more):
    """A body as the hook gets it."""
    return {"model": "smollm2", "stream": True, "messages": [{"role": "user", "content": "hi"}], **copy.deepcopy(more)}


def sent(body):
    """The parameters in a body."""
    return {key: value for key, value in body.items() if key.startswith("qr_") and key != "qr_client"}


def request(**models):
    """A request whose application knows these models."""
    return types.SimpleNamespace(app=types.SimpleNamespace(state=types.SimpleNamespace(MODELS=models, OPENAI_MODELS={})))


def example(field):
    """A stored value of a field, and what is sent for it."""
    if field.get("enum"):
        return field["enum"][-1], field["enum"][-1]
    if field["type"] == "boolean":
        return "on", True
    if field["type"] == "object":
        return '{"50": -100}', {"50": -100}
    if field["type"] == "string":
        return " some-name ", "some-name"
    value = field["max"] if field["max"] < 1e6 else 7
    return str(value), value
