"""What is no gateway, or a gateway that is not well: one clear sentence, or the chat goes on."""

import re
import statistics
import time

from playwright.sync_api import expect


def test_a_gateway_that_is_down(chat, page, filter):
    chat.open("down")
    chat.send("Hello.")
    expect(chat.error).to_have_text("Open WebUI: Server Connection Error")
    expect(chat.stop_button).to_have_count(0)


def test_an_error_page_where_a_gateway_should_be(chat, page, filter, screenshot):
    chat.open("html")
    chat.send("Hello.")
    expect(chat.error).to_contain_text("Sign in to the proxy")
    screenshot(page, "html")
    expect(chat.stop_button).to_have_count(0)


def test_a_page_where_a_gateway_should_be(chat, page, standin, filter, screenshot):
    """Open WebUI goes on waiting when a page comes with status 200; a look at the chat anew ends that."""
    chat.open("html200")
    chat.send("Hello.")
    assert standin.shown.wait(20)
    expect(page).to_have_url(re.compile("/c/"))
    expect(chat.stop_button).to_be_visible()
    page.reload()
    expect(page.locator("#messages-container .chat-user")).to_contain_text("Hello.")
    expect(page.locator("#chat-input")).to_be_visible()
    expect(chat.stop_button).to_have_count(0)
    screenshot(page, "html200")


def test_a_slow_gateway(chat, standin, filter):
    """Comments keep the connection; the answer comes when it comes."""
    chat.open("slow")
    chat.send("Hello.")
    assert standin.waiting.wait(10)
    expect(chat.stop_button).to_be_visible()
    standin.released.set()
    expect(chat.text).to_contain_text("At last.")


def test_models_while_the_engine_is_dead(chat, gateway, filter):
    mark = gateway.mark()
    gateway.kill_engines()
    times = [timed(gateway.models) for _ in range(20)]
    assert statistics.median(times) < 0.05
    # The gateway's own measure leaves out what else this machine does.
    slowest = max(r["duration"] for r in gateway.records(mark) if r["path"] == "/v1/models")
    assert slowest < 50e6, f"the list of models took {slowest / 1e6:.0f} ms"
    # A chat waits for the new engine.
    chat.open("smollm2")
    chat.ask("Say hello.")
    expect(chat.error).to_have_count(0)


def timed(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began
