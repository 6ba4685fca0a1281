"""The files are what Open WebUI takes, and hold nothing that it would change."""

import ast
import re
import sys

from conftest import FILES, frontmatter, load


def test_file_is_an_array_of_one_function(functions):
    (function,) = functions
    assert function["id"] == "qr_gateway_filter" and function["id"].isidentifier() and function["id"].islower()
    assert function["name"] and function["type"] == "filter"
    assert function["content"] == (FILES / "qr_gateway_filter.py").read_text()
    assert function["meta"]["manifest"] == frontmatter(function["content"])
    assert function["meta"]["description"] == function["meta"]["manifest"]["description"]


def test_frontmatter(functions, module):
    content = functions[0]["content"]
    head = frontmatter(content)
    assert content.startswith('"""\n')
    assert set(head) == {"title", "author", "version", "license", "description", "required_open_webui_version"}
    assert head["author"] == "qr-gateway" and head["license"] == "Apache-2.0" and head["required_open_webui_version"] == "0.10.0"
    assert module.VERSION == head["version"] and module.CLIENT == "open-webui-filter/" + head["version"]
    assert len(module.CLIENT.encode()) <= 128


def test_nothing_is_rewritten(functions):
    assert not re.search(r"from (utils|apps|main|config)", functions[0]["content"])


def test_imports_are_the_standard_library_and_pydantic(functions):
    for node in ast.walk(ast.parse(functions[0]["content"])):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names | {"pydantic"}


def test_it_is_a_filter_that_always_runs(module):
    assert not any(hasattr(module, name) for name in ("Pipe", "Action", "Event", "Tools"))
    f = module.Filter()
    assert not getattr(f, "toggle", False) and not hasattr(f, "stream") and not hasattr(f, "file_handler")
    assert f.valves == f.Valves()


def test_source_runs_by_itself():
    source = load((FILES / "source.py").read_text())
    assert source.Filter().inlet({"model": "m"}) == {"model": "m"}
