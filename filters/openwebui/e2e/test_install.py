"""From a file to a filter that works, on the pages of an administrator."""

import json
import subprocess

import pytest
from playwright.sync_api import expect

from conftest import FILTER_FILE
from gateway import PROGRAM
from pages import Chat, Connections, SignIn, failure, toast
from webui import ADMIN, FILTER, TEMPLATES, APIError


def test_sign_in(new_context, webui, admin):
    page = new_context().new_page()
    SignIn(page, webui.url)(ADMIN)
    expect(page.get_by_role("button", name="User menu")).to_be_visible()


def test_a_connection(page, webui, admin, second, filter, screenshot):
    """Added on the page: a wrong URL is told, the right one serves, and its headers name the chat."""
    connections = Connections(page, webui.url)
    connections.open()
    connections.fill(second.url + "/nonesuch", TEMPLATES, "third")
    connections.verify()
    expect(failure(page)).to_contain_text("the API is under /v1")
    connections.fill(second.url + "/v1", TEMPLATES, "third")
    connections.verify()
    expect(toast(page, "Server connection verified")).to_be_visible()
    screenshot(page, "connection")
    connections.save()

    mark, chat = second.mark(), Chat(page, webui.url)
    chat.open("third.words")
    chat.ask("Say something.")
    record = second.wait_chat(mark)
    assert record["model"] == "words" and record["message_id"]
    page.wait_for_url(f"**/c/{record['chat_id']}")  # the page's address follows when it has the answer


def test_from_the_file_to_a_chat(functions, page, webui, admin, gateway, screenshot):
    """Import, activate, set global, three valves by clicking, and a chat that has them."""
    admin.remove_filter()
    functions.open()
    functions.choose(FILTER_FILE)
    screenshot(page, "import")
    functions.confirm()
    expect(toast(page, "Functions imported successfully")).to_be_visible()
    page.reload()
    functions.enable()
    functions.set_global()
    assert {k: admin.function()[k] for k in ("is_active", "is_global")} == {"is_active": True, "is_global": True}
    functions.open()
    page.get_by_role("button", name="Function Menu").click()
    screenshot(page, "function", guide=True, height=420)
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 1280, "height": 1280})

    with functions.valves(admin) as valves:
        valves.select("qr_decoder", "lookahead")
        valves.type("qr_alpha", "0.4")
        valves.toggle("warnings")
        screenshot(page, "valves", guide=True, of=page.get_by_role("dialog").locator("> div"))
    expect(toast(page, "Valves updated successfully")).to_be_visible()
    assert admin.valves() == {"qr_decoder": "lookahead", "qr_alpha": 0.4, "warnings": False}

    mark, chat = gateway.mark(), Chat(page, webui.url)
    chat.open("smollm2")
    chat.ask("Tell me a story about a lighthouse.")
    record = gateway.wait_chat(mark)
    assert record["client"].startswith("open-webui-filter/")
    assert record["qr"] == {"decoder": "lookahead", "alpha": 0.4}


def test_default_takes_a_valve_back(functions, page, admin, filter):
    filter(qr_alpha=0.4, qr_decoder="lookahead")
    functions.open()
    with functions.valves(admin) as valves:
        valves.default("qr_alpha")
    expect(toast(page, "Valves updated successfully")).to_be_visible()
    assert admin.valves() == {"qr_decoder": "lookahead"}


def edited(**changes):
    """The file to import with something of its function changed; None takes it out."""
    element = {**json.loads(FILTER_FILE.read_text())[0], **changes}
    return {k: v for k, v in element.items() if v is not None}


@pytest.mark.parametrize(
    ("content", "said"), [("class Filter:\n    oops = (", "begin with a line"), (None, "no class")], ids=["code", "no-code"]
)
def test_a_file_that_open_webui_refuses(functions, page, admin, tmp_path, content, said):
    """The page shows an error, though also that all went well."""
    admin.remove_filter()
    functions.open()
    file = write(tmp_path, json.dumps([edited(content=content)]))
    functions.choose(file)
    functions.confirm()
    expect(failure(page)).to_be_attached()
    assert admin.function() is None
    assert_refused(file, said)


@pytest.mark.parametrize(
    ("text", "said"), [(json.dumps(edited()), "array"), (json.dumps([edited()])[:-100], "JSON")], ids=["no-list", "cut"]
)
def test_a_file_that_the_page_cannot_read(functions, page, admin, tmp_path, text, said):
    """The page itself says nothing of it; `filter check` does."""
    admin.remove_filter()
    functions.open()
    file = write(tmp_path, text)
    with page.expect_event("pageerror"):
        functions.choose(file)
        functions.confirm()
    assert admin.function() is None
    assert_refused(file, said)


def assert_refused(file, said):
    done = subprocess.run([PROGRAM, "filter", "check", file], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert said in done.stderr and "hint: " in done.stderr, done.stderr


def write(folder, text):
    file = folder / "edited.json"
    file.write_text(text)
    return file


def test_the_file_twice(functions, page, admin, filter):
    """An import is no update: the page says so, and valves and switches stay."""
    filter(qr_alpha=0.4)
    functions.open()
    functions.choose(FILTER_FILE)
    functions.confirm()
    expect(failure(page)).to_contain_text("already")
    assert admin.valves() == {"qr_alpha": 0.4}
    assert admin.function()["is_global"]


def test_the_installer(admin, install):
    admin.remove_filter()
    install("--valve", "qr_alpha=0.4", "--valve", "qr_decoder=lookahead")
    assert admin.function()["is_active"] and admin.function()["is_global"]
    assert admin.valves() == {"qr_alpha": 0.4, "qr_decoder": "lookahead"}
    assert "unchanged" in install()


def test_a_user_without_rights(user_page, webui, user, element, filter):
    user_page.goto(webui.url + "/admin/functions")
    user_page.wait_for_selector("#chat-input")
    for call in (
        lambda: user.post("/v1/functions/create", element),
        lambda: user.set_valves(qr_alpha=0.4),
        lambda: user.post(f"/v1/functions/id/{FILTER}/toggle"),
    ):
        with pytest.raises(APIError) as refused:
            call()
        assert refused.value.status == 401


def test_a_model_that_the_user_may_not_use(user, filter):
    with pytest.raises(APIError, match="[Mm]odel not found"):
        user.chat("html", "Hello.")
