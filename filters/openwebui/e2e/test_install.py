"""From a file to a filter that works, on the pages of an administrator."""

import json

import pytest
from playwright.sync_api import expect

from conftest import FILTER_FILE
from pages import Chat, SignIn, failure, toast
from webui import ADMIN, FILTER, APIError


def test_sign_in(new_context, webui, admin):
    page = new_context().new_page()
    SignIn(page, webui.url)(ADMIN)
    expect(page.get_by_role("button", name="User menu")).to_be_visible()


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
    screenshot(page, "function", guide=True)

    with functions.valves(admin) as valves:
        valves.select("qr_decoder", "lookahead")
        valves.type("qr_alpha", "0.4")
        valves.toggle("warnings")
        screenshot(page, "valves", guide=True)
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


@pytest.mark.parametrize("content", ["class Filter:\n    oops = (", None], ids=["code", "no-content"])
def test_a_file_that_open_webui_refuses(functions, page, admin, tmp_path, content):
    """The page shows an error, though also that all went well."""
    admin.remove_filter()
    functions.open()
    functions.choose(write(tmp_path, json.dumps([edited(content=content)])))
    functions.confirm()
    expect(failure(page)).to_be_attached()
    assert admin.function() is None


@pytest.mark.parametrize("text", [json.dumps(edited()), json.dumps([edited()])[:-100]], ids=["no-list", "cut"])
def test_a_file_that_the_page_cannot_read(functions, page, admin, tmp_path, text):
    """The page itself says nothing of it, so the guide does."""
    admin.remove_filter()
    functions.open()
    with page.expect_event("pageerror"):
        functions.choose(write(tmp_path, text))
        functions.confirm()
    assert admin.function() is None


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
