"""What is shown with an answer."""

import asyncio
import copy
import json

import pytest
from conftest import OTHER, OURS

LOOKAHEAD = {
    "decoder": "lookahead", "choice": "sample", "curve": "article", "alpha_min": 0.3, "alpha_max": 0.3, "peeks_per_token": 1.934, "tokens": 212,
    "entropy_source": "system", "policy": "strict", "record": "http://gateway.test/v1/qr/records/chatcmpl-1",
}  # fmt: skip


def answered(report, **more):
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "qr": report}
    return {"model": "smollm2", "id": "m2", "messages": [{"id": "m1", "role": "user", "content": "hi"}, {"id": "m2", "role": "assistant", "content": "ho", "usage": usage, **more}]}


def shown(f, body, model=OURS, emitter=None):
    """The events of a call; the body must come back as it was."""
    events, before = [], copy.deepcopy(body)

    async def collect(event):
        events.append(event)

    assert asyncio.run(f.outlet(body, __event_emitter__=emitter or collect, __model__=model)) is body and body == before
    return events


def test_status_and_link(make):
    status, source = shown(make(), answered(LOOKAHEAD))
    text = "look-ahead, alpha 0.30, 1.9 peeks a token · entropy: system · 212 tokens"
    assert status == {"type": "status", "data": {"description": text, "done": True}}
    assert source["type"] == "source" and source["data"]["source"]["url"] == LOOKAHEAD["record"]
    assert source["data"]["document"] == [text] and len(source["data"]["metadata"]) == 1


def test_the_link_asks_no_third_party(make):
    """Open WebUI fetches an icon from elsewhere for a source whose name, or what names it, is an address, and for a status with addresses."""
    status, source = shown(make(), answered(LOOKAHEAD))
    assert set(status["data"]) == {"description", "done"}
    data = source["data"]
    for name in (data["source"]["name"], data["source"].get("id", ""), *(m[k] for m in data["metadata"] for k in ("source", "name"))):
        assert not name.startswith("http")


@pytest.mark.parametrize(
    ("report", "text"),
    [
        ({"decoder": "plain", "tokens": 1, "entropy_source": "seed"}, "plain · entropy: seed · 1 token"),
        ({"decoder": "plain", "strategy": "edt", "preset": "adaptive", "tokens": 2}, "plain, edt, preset adaptive · 2 tokens"),
        ({"decoder": "plain", "strategy": "fixed", "tokens": 0}, "plain · 0 tokens"),
        ({"decoder": "lookahead", "alpha_min": -0.8, "alpha_max": 0.4, "tokens": 9}, "look-ahead, alpha -0.80 to 0.40 · 9 tokens"),
        ({"decoder": "lookahead", "alpha_min": 0, "alpha_max": 0, "peeks_per_token": 2, "fallback_tokens": 0}, "look-ahead, alpha 0.00, 2.0 peeks a token"),
        ({"decoder": "plain", "fallback_tokens": 3, "flagged_tokens": 2, "tokens": 9, "entropy_source": "lab"}, "plain · entropy: lab · 3 by fallback · 2 flagged · 9 tokens"),
        ({}, "sampling"),
    ],
)
def test_line(make, report, text):
    assert shown(make(warnings=False), answered(report))[0]["data"]["description"] == text


def test_warning(make):
    report = {**LOOKAHEAD, "entropy_source": "lab", "fallback_tokens": 7}
    *_, warning = shown(make(), answered(report))
    assert warning["type"] == "notification" and warning["data"]["type"] == "warning"
    assert "lab" in warning["data"]["content"] and "7 of 212 tokens" in warning["data"]["content"]
    assert [e["type"] for e in shown(make(status=False), answered(report))] == ["notification"]
    assert [e["type"] for e in shown(make(warnings="off"), answered(report))] == ["status", "source"]
    assert shown(make(status=False, warnings=False), answered(report)) == []


def test_silent_where_nothing_is_known(make):
    f = make()
    assert shown(f, answered(LOOKAHEAD), model=OTHER) == shown(f, answered(LOOKAHEAD), model=None) == []
    assert shown(make(enabled=False), answered(LOOKAHEAD)) == []
    for report in None, "x", 7, []:
        assert shown(f, answered(report)) == []
    newest = answered(LOOKAHEAD)
    newest["messages"] += [{"role": "user", "content": "more"}, {"role": "assistant", "content": "stopped"}]
    assert shown(f, newest) == [], "an older answer's report is not this one's"
    for body in {"model": "smollm2"}, {"model": "smollm2", "messages": None}, {"model": "smollm2", "messages": []}:
        assert shown(f, body) == []


def test_a_link_only_to_a_record(make):
    for record in None, "", "javascript:alert(1)", 7, "/v1/qr/records/x":
        assert [e["type"] for e in shown(make(), answered({**LOOKAHEAD, "record": record}))] == ["status"]
    known = [{"source": {"url": LOOKAHEAD["record"]}}]
    assert [e["type"] for e in shown(make(), answered(LOOKAHEAD, sources=known))] == ["status"], "it is there already"


def test_usage_in_info(make):
    body = answered(None)
    del body["messages"][-1]["usage"]
    body["messages"][-1]["info"] = {"usage": {"qr": LOOKAHEAD}}
    assert len(shown(make(), body)) == 2


def test_junk_reports_and_emitters_never_raise(make):
    f = make()
    for key in LOOKAHEAD:
        for junk in None, "x" * 9999, [1], {"a": 1}, True, float("nan"):
            for event in shown(f, answered({**LOOKAHEAD, "fallback_tokens": 1, key: junk})):
                assert len(json.dumps(event)) < 12000

    async def broken(_):
        raise RuntimeError("the page is gone")

    assert shown(f, answered(LOOKAHEAD), emitter=broken) == []
    body = answered(LOOKAHEAD)
    for emitter in None, 7, lambda event: None:
        assert asyncio.run(f.outlet(body, __event_emitter__=emitter, __model__=OURS)) is body
    for junk in None, [], "x", {"messages": 7, "model": "smollm2"}, {"messages": ["x"], "model": "smollm2"}:
        assert asyncio.run(f.outlet(junk, __event_emitter__=broken, __model__=OURS)) is junk


def test_a_failure_is_logged_without_its_text(make, caplog):
    async def gone(_event):
        raise RuntimeError("what somebody wrote")

    shown(make(), answered(LOOKAHEAD), emitter=gone)
    (record,) = caplog.records
    assert record.levelname == "ERROR" and "outlet failed with RuntimeError at line" in record.getMessage()
    assert "somebody" not in caplog.text
