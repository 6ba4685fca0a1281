"""The stop button gives the worker back, whatever the answer is at."""

import pytest
from playwright.sync_api import expect

# A prompt that takes the model a while to read.
LONG = "The sea was calm and the light went round. " * 330


@pytest.fixture(scope="session")
def storyteller(admin, gateway):
    """smollm2 with answers long enough to be stopped."""
    admin.add_card("storyteller", base="smollm2", params={"max_tokens": 2000})
    return "storyteller"


def test_before_the_first_token(chat, gateway, filter, storyteller):
    chat.open(storyteller)
    mark = gateway.mark()
    chat.send(LONG)
    gateway.wait_busy("smollm2")
    chat.stop_button.click()
    gateway.wait_idle("smollm2")
    assert gateway.wait_chat(mark)["status"] == 499
    assert not chat.text.inner_text().strip()


def test_after_the_first_token(chat, gateway, filter, storyteller):
    filter(qr_alpha=0.4)
    chat.open(storyteller)
    mark = gateway.mark()
    chat.send("Write a long story about a lighthouse.")
    chat.wait_longer_than(20)
    chat.stop_button.click()
    gateway.wait_idle("smollm2")
    assert gateway.wait_chat(mark)["status"] == 499
    expect(chat.stop_button).to_have_count(0)
