"""The same filter in the oldest Open WebUI that it is held against, by its API."""

import os
from pathlib import Path

import pytest

from conftest import SHORT
from webui import ADMIN, FILTER, OpenWebUI, connection

TASKS = ("title", "tags", "follow_up")


@pytest.fixture(scope="module")
def older(artifacts, gateway):
    venv = Path(os.environ["QR_E2E_OLDER"])
    webui = OpenWebUI(artifacts / "older", [connection(gateway.url + "/v1")], venv, TASK_MODEL_PARAMS=SHORT)
    try:
        yield webui.start().sign_in(ADMIN)
    finally:
        webui.stop()


def test_from_the_file_to_a_chat(older, element, gateway):
    assert older.get("/version")["version"] == os.environ["QR_E2E_OLDER_VERSION"]
    assert "smollm2" in older.models()
    older.ensure_filter(element)
    spec = older.get(f"/v1/functions/id/{FILTER}/valves/spec")["properties"]
    assert "lookahead" in spec["qr_decoder"]["enum"]
    older.set_valves(qr_decoder="lookahead", qr_alpha="0.4")
    older.set_user_valves(qr_top_k="40")

    mark = gateway.mark()
    answer = older.chat("smollm2", "Say hello.", max_tokens=20)
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["qr"]["decoder"] == "lookahead"
    record = gateway.wait_chat(mark)
    assert record["client"].startswith("open-webui-filter/")
    assert record["qr"] == {"decoder": "lookahead", "alpha": 0.4, "top_k": 40}

    # A value of the body wins over both valves, and other parameters of the valves stay.
    mark = gateway.mark()
    older.chat("smollm2", "Say hello.", max_tokens=20, qr_top_k=10)
    assert gateway.wait_chat(mark)["qr"] == {"decoder": "lookahead", "alpha": 0.4, "top_k": 10}


@pytest.mark.parametrize("task", TASKS)
def test_tasks_take_the_plain_lane(older, gateway, task):
    mark = gateway.mark()
    path = f"/v1/tasks/{task}/completions"
    messages = [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello."}]
    answer = older.post(path, {"model": "smollm2", "messages": messages, "chat_id": "none"})
    assert answer["qr"]["decoder"] == "plain" and answer["usage"]["qr"]["task"] == f"{task}_generation"
    (record,) = gateway.completions(mark)
    assert record["task"] == f"{task}_generation"
    assert "qr" not in record
