"""A source of entropy that goes away in the middle of an answer."""

import pytest
from playwright.sync_api import expect

from pages import toast
from processes import wait_for


@pytest.fixture
def source(entropy_server, gateway):
    """Starts the entropy server and waits until the gateway draws from it."""
    entropy_server.start()
    for name in ("lab", "lab-strict"):
        wait_for(f"source {name} to serve", lambda: draws(gateway, name), 20)
    yield entropy_server
    entropy_server.stop()


def draws(gateway, name):
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "qr_entropy_source": name}
    answer = gateway.http.post("/v1/chat/completions", json=body)
    return answer.status_code == 200 and not answer.json()["qr"].get("fallback_tokens")


def test_the_second_choice_is_told(chat, page, gateway, filter, source, screenshot):
    filter(qr_entropy_source="lab")
    chat.open("smollm2")
    chat.send("Write a story about a lighthouse.")
    chat.wait_longer_than(0)
    source.kill()
    expect(toast(page, "entropy")).to_be_visible(timeout=30_000)
    screenshot(page, "fallback", guide=True, height=400)
    expect(chat.status).to_contain_text("lab")
    chat.wait_done()


def test_strict_ends_the_answer(chat, page, gateway, filter, source, screenshot):
    filter(qr_entropy_source="lab-strict")
    chat.open("smollm2")
    chat.send("Write a story about a lighthouse.")
    chat.wait_longer_than(0)
    source.kill()
    expect(chat.error).to_contain_text("lab-strict", timeout=30_000)
    screenshot(page, "strict")
    gateway.wait_idle("smollm2")


def test_strict_before_the_first_token(chat, gateway, filter, screenshot, page):
    filter(qr_entropy_source="lab-strict")
    chat.open("smollm2")
    chat.send("Say hello.")
    expect(chat.error).to_contain_text("lab-strict")


def test_a_name_that_is_no_source(chat, filter):
    filter(qr_entropy_source="nonesuch")
    chat.open("smollm2")
    chat.send("Say hello.")
    expect(chat.error).to_contain_text("nonesuch")
    expect(chat.error).to_contain_text("lab")
