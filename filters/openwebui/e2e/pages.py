"""What a person does on Open WebUI's pages, by the names that the pages show."""

import json
import re
from contextlib import contextmanager

from playwright.sync_api import expect

from webui import FILTER

ANSWER_TIMEOUT = 60_000


def toast(page, text):
    """The small box at the upper right that holds the text."""
    return page.locator("[data-sonner-toast]").filter(has_text=text)


def failure(page):
    """The small box of an error."""
    return page.locator("[data-sonner-toast][data-type=error]")


class SignIn:
    def __init__(self, page, url):
        self.page, self.url = page, url

    def __call__(self, user):
        self.page.goto(self.url + "/auth")
        self.page.fill("#email", user["email"])
        self.page.fill("#password", user["password"])
        self.page.click("button[type=submit]")
        self.page.wait_for_selector("#chat-input")


class Connections:
    """Admin Panel > Settings > Connections."""

    def __init__(self, page, url):
        self.page, self.url = page, url

    def open(self):
        self.page.goto(self.url + "/admin/settings/connections")
        self.page.get_by_role("button", name="Add Connection").first.click()
        self.dialog = self.page.get_by_role("dialog").last
        self.dialog.get_by_role("button", name="Advanced").click()

    def fill(self, url, headers, prefix):
        self.dialog.get_by_placeholder("API Base URL").fill(url)
        self.dialog.get_by_placeholder("API Key").fill("none")
        self.dialog.get_by_label("Enter additional headers in JSON format").fill(json.dumps(headers))
        self.dialog.get_by_placeholder("Prefix ID").fill(prefix)

    def verify(self):
        self.dialog.get_by_role("button", name="Verify Connection").click()

    def save(self):
        with self.page.expect_response(re.compile("openai/config/update")) as done:
            self.dialog.get_by_role("button", name="Save").click()
        assert done.value.ok


class Functions:
    """Admin Panel > Functions."""

    def __init__(self, page, url):
        self.page, self.url = page, url

    def open(self):
        self.page.goto(self.url + "/admin/functions")
        expect(self.page.get_by_role("button", name="Open create menu")).to_be_visible()

    def choose(self, file):
        """Takes Import JSON from the menu and answers its file chooser."""
        self.page.get_by_role("button", name="Open create menu").click()
        with self.page.expect_file_chooser() as chooser:
            self.page.get_by_role("button", name="Import JSON").click()
        chooser.value.set_files(file)

    def confirm(self):
        self.page.get_by_role("button", name="Confirm", exact=True).click()

    def enable(self):
        """Turns the switch of the only function's row."""
        with self.page.expect_response(re.compile("/toggle$")) as done:
            self.page.get_by_role("switch", name="Enabled").click()
        assert done.value.ok

    def set_global(self):
        self.page.get_by_role("button", name="Function Menu").click()
        row = self.page.get_by_text("Global", exact=True).locator("../..")
        row.get_by_role("switch").click()
        expect(toast(self.page, "Filter is now globally enabled")).to_be_visible()
        self.page.keyboard.press("Escape")

    @contextmanager
    def valves(self, api):
        """The administrator's valves; they are saved at the end of the block."""
        self.page.get_by_role("button", name="Valves").click()
        form = self.page.locator("form").filter(has=self.page.get_by_role("button", name="Save"))
        yield Valves(self.page, form, titles(api, "valves/spec"))
        form.get_by_role("button", name="Save").click()


def titles(api, spec):
    """What the page calls each valve."""
    found = api.get(f"/v1/functions/id/{FILTER}/{spec}")["properties"]
    return {key: field["title"] for key, field in found.items()}


class Valves:
    """A form of valves: each has a name, a button Default or Custom, and when custom an input."""

    def __init__(self, page, form, names):
        self.page, self.form, self.names = page, form, names

    def row(self, key):
        name = re.compile(rf"^\s*{re.escape(self.names[key])}\s*\*?\s*$")
        label = self.form.locator("div.text-xs").filter(has_text=name).first
        return label.locator("xpath=../..")

    def custom(self, key):
        row = self.row(key)
        row.get_by_role("button", name="Default", exact=True).click()
        return row

    def default(self, key):
        self.row(key).get_by_role("button", name="Custom", exact=True).click()

    def select(self, key, value):
        self.custom(key).locator("select").select_option(value)

    def type(self, key, value):
        self.custom(key).locator("input, textarea").fill(value)

    def toggle(self, key):
        self.custom(key).get_by_role("switch").click()


class Chat:
    def __init__(self, page, url):
        self.page, self.url = page, url

    def open(self, model):
        self.page.goto(f"{self.url}/?models={model}")
        self.page.wait_for_selector("#chat-input")
        expect(self.page.get_by_role("button", name=re.compile("^Selected model"))).to_be_visible()

    def send(self, text):
        self.page.click("#chat-input")
        self.page.locator("#chat-input").fill(text)
        self.page.click("#send-message-button")

    def attach(self, file):
        self.page.get_by_role("button", name="More").click()
        with self.page.expect_file_chooser() as chooser:
            self.page.get_by_text("Upload Files").click()
        chooser.value.set_files(file)

    @contextmanager
    def model_controls(self):
        """The menu beside the model's name."""
        button = self.page.get_by_role("button", name="Model controls")
        button.click()
        yield
        self.page.keyboard.press("Escape")

    def hover_info(self):
        """Shows what the answer took."""
        self.page.locator("button[id^=info-]").last.hover()

    def ask(self, text):
        """Sends and waits for the whole answer."""
        self.send(text)
        self.wait_done()

    @property
    def stop_button(self):
        return self.page.get_by_role("button", name="Stop", exact=True)

    @property
    def answer(self):
        return self.page.locator(".chat-assistant").last

    @property
    def text(self):
        return self.answer.locator("#response-content-container")

    @property
    def error(self):
        """The box below an answer that failed."""
        return self.answer.locator("#response-content-container div.break-words")

    @property
    def status(self):
        return self.answer.locator(".status-description")

    def wait_done(self):
        """Waits until the answer's own buttons are there, which come when it is whole."""
        expect(self.page.locator(".copy-response-button").last).to_be_visible(timeout=ANSWER_TIMEOUT)

    def wait_longer_than(self, length, timeout=ANSWER_TIMEOUT):
        """Waits for more than so many characters of the answer, and returns how many there are."""
        script = """n => {
            const all = document.querySelectorAll('.chat-assistant #response-content-container');
            const text = all.length ? all[all.length - 1].innerText : '';
            return text.length > n ? text.length : 0;
        }"""
        return self.page.wait_for_function(script, arg=length, timeout=timeout).json_value()

    def close_controls(self):
        self.page.get_by_role("button", name="Close", exact=True).click()

    @contextmanager
    def own_valves(self, api):
        """The valves of a user, in the chat's controls; they are saved by themselves."""
        if not self.page.get_by_text("Advanced Params").is_visible():
            self.page.get_by_role("button", name="Controls").first.click()
        self.page.get_by_text("Valves", exact=True).click()
        selects = self.page.locator("form select")
        selects.nth(0).select_option("functions")
        selects.nth(1).select_option(FILTER)
        form = self.page.locator(".chat-control-valves")
        with self.page.expect_response(re.compile("valves/user/update")) as saved:
            yield Valves(self.page, form, titles(api, "valves/user/spec"))
        assert saved.value.ok
