"""Chats through the filter, as people have them."""

import json
import re

from playwright.sync_api import expect

from conftest import CARD
from pages import Chat, failure, toast
from processes import wait_for


def test_an_answer_grows(chat, page, gateway, filter, screenshot):
    filter(qr_alpha=0.4)
    chat.open("smollm2")
    chat.send("Tell me a story about a lighthouse.")
    first = chat.wait_longer_than(0)
    expect(chat.stop_button).to_be_visible()
    screenshot(page, "streaming")
    assert chat.wait_longer_than(first) > first
    chat.wait_done()


def test_what_happened_is_told(chat, page, gateway, filter, screenshot):
    filter(qr_alpha=0.4)
    mark = gateway.mark()
    chat.open("smollm2")
    chat.ask("Tell me a story about a lighthouse.")
    expect(chat.status).to_contain_text("look-ahead")
    expect(chat.status).to_contain_text("0.4")
    expect(chat.status).to_contain_text("system")
    screenshot(page, "chat", guide=True, height=400)

    chat.hover_info()
    for line in ('decoder: "lookahead"', "alpha_max: 0.4", 'entropy_source: "system"'):
        expect(page.locator("pre").filter(has_text=line)).to_be_visible()
    screenshot(page, "usage", height=560)

    record = read_record(chat, page, screenshot)
    log = gateway.wait_chat(mark)
    assert record["model"] == "smollm2"
    assert record["params"]["qr_alpha"] == 0.4
    assert record["chat_id"] == log["chat_id"] and record["chat_id"]
    assert record["message_id"] == log["message_id"] and record["message_id"]
    assert record["usage"]["completion_tokens"] == log["completion_tokens"]


def read_record(chat, page, screenshot):
    """Follows the link below the answer, as a reader would, and returns what it shows."""
    chat.answer.get_by_role("button", name=re.compile("^Toggle .* source")).click()
    chat.answer.get_by_role("button", name=re.compile("^View source")).click()
    link = page.get_by_role("dialog").get_by_role("link").first
    screenshot(page, "record", guide=True, height=600)
    with page.context.expect_page() as opened:
        link.click()
    opened.value.wait_for_load_state()
    return json.loads(opened.value.locator("body").inner_text())


def test_status_can_be_switched_off(chat, filter):
    filter(status=False)
    chat.open("words")
    chat.ask("Say something.")
    expect(chat.status).to_have_count(0)


def test_a_user_overrides_the_administrator(user_page, webui, admin, user, gateway, filter, screenshot):
    filter(qr_alpha=0.4, qr_top_k=40)
    chat = Chat(user_page, webui.url)
    chat.open("smollm2")
    with chat.own_valves(user) as valves:
        valves.type("qr_alpha", "-0.2")
        screenshot(user_page, "user-valves", guide=True, left=925)
    chat.close_controls()
    mark = gateway.mark()
    chat.ask("Say hello.")
    assert gateway.wait_chat(mark)["qr"] == {"alpha": -0.2, "top_k": 40}
    user.set_user_valves()

    mark = gateway.mark()
    admin.chat("smollm2", "Say hello.")
    assert gateway.wait_chat(mark)["qr"] == {"alpha": 0.4, "top_k": 40}


def test_bad_values_are_told_and_can_be_mended(chat, functions, page, admin, filter, screenshot):
    for value in ("7", "abc"):
        filter()
        functions.open()
        with functions.valves(admin) as valves:
            valves.type("qr_alpha", value)
        expect(toast(page, "Valves updated successfully")).to_be_visible()
        chat.open("smollm2")
        chat.send("Say hello.")
        for part in ("qr_alpha", value, "-1", "1"):
            expect(chat.error).to_contain_text(part)
        screenshot(page, f"bad-{value}", height=400)
    filter(qr_alpha=0.4)
    chat.open("smollm2")
    chat.ask("Say hello.")
    expect(chat.error).to_have_count(0)


def test_a_models_card(chat, page, cards, filter, screenshot):
    chat.open("smollm2")
    for shown in (CARD["name"], CARD["description"], *CARD["prompts"]):
        expect(page.get_by_text(shown).first).to_be_visible()
    screenshot(page, "card")


def test_the_slider_of_the_card(user_page, webui, cards, gateway, filter, screenshot):
    """One click for those who do not want to know parameters; the filter lets it win."""
    filter(qr_alpha=0.1)
    chat = Chat(user_page, webui.url)
    chat.open("smollm2")
    with chat.model_controls():
        user_page.get_by_role("slider", name="Look-ahead").fill("3")
        expect(user_page.get_by_text("Strong").nth(1)).to_be_visible()
        screenshot(user_page, "slider", guide=True, height=560)
    mark = gateway.mark()
    chat.ask("Say hello.")
    assert gateway.wait_chat(mark)["qr"] == {"decoder": "lookahead", "alpha": 0.6}
    with chat.model_controls():
        user_page.get_by_role("button", name="Default", exact=True).click()


def test_a_picture_to_a_text_model(chat, page, filter, tmp_path):
    """The page itself refuses it, as the gateway says that the model sees nothing."""
    chat.open("smollm2")
    chat.attach(picture(page, tmp_path))
    expect(failure(page)).to_contain_text("do not support image inputs")


def test_a_picture_that_gets_as_far_as_the_gateway(chat, page, admin, filter, tmp_path, screenshot):
    admin.add_card("seer", base="words", vision=True)
    chat.open("seer")
    chat.attach(picture(page, tmp_path))
    expect(page.locator("#message-input-container img")).to_be_visible()
    chat.send("What is in this picture?")
    expect(chat.error).to_contain_text("text")
    screenshot(page, "picture")


def picture(page, folder):
    file = folder / "picture.png"
    page.screenshot(path=file, clip={"x": 0, "y": 0, "width": 64, "height": 64})
    return file


def test_two_gateways(admin, gateway, second, filter):
    filter(qr_alpha=0.4)
    marks = gateway.mark(), second.mark()
    assert admin.chat("words", "Say something.")["choices"][0]["message"]["content"]
    assert admin.chat("second.words", "Say something.")["choices"][0]["message"]["content"]
    for g, mark in zip((gateway, second), marks):
        assert [r["qr"]["alpha"] for r in g.chats(mark)] == [0.4]


def test_a_workspace_model(admin, gateway, filter):
    """A model of the workspace has no mark of ours; its base has."""
    filter(qr_alpha=0.4)
    admin.add_card("parrot", base="words")
    mark = gateway.mark()
    admin.chat("parrot", "Say something.")
    assert gateway.wait_chat(mark)["qr"]["alpha"] == 0.4


def test_tasks_take_the_plain_lane(chat, page, admin, gateway, filter):
    filter(qr_alpha=0.4)
    admin.set_tasks(True)
    try:
        mark = gateway.mark()
        chat.open("smollm2")
        chat.ask("Tell me a story about a lighthouse.")
        tasks = wait_for("the tasks of a chat", lambda: all_tasks(gateway.tasks(mark)), 90)
    finally:
        admin.set_tasks(False)
    for task in tasks.values():
        assert task["status"] == 200 and "decoder" not in task.get("qr", {})
    assert gateway.wait_chat(mark)["qr"]["alpha"] == 0.4


def all_tasks(records):
    found = {r["task"]: r for r in records}
    return found if set(found) >= {"title_generation", "tags_generation", "follow_up_generation"} else None
