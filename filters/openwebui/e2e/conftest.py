"""What the tests share: one gateway on the real model, a second one beside it, a real Open WebUI and a browser."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from gateway import PROGRAM, ROOT, Gateway
from pages import Chat, Functions
from processes import Process, free_port
from standins import StandIn
from webui import ADMIN, OpenWebUI, connection

ARTIFACTS = Path(os.environ.get("QR_E2E_ARTIFACTS", ROOT / "artifacts" / "openwebui")).resolve()
IMAGES = ROOT / "docs" / "images" / "open-webui"
FILTER_FILE = ROOT / "filters" / "openwebui" / "qr_gateway_filter.json"
USER = {"email": "user@example.org", "password": "battery horse correct", "name": "Ben"}
# What the page shows of smollm2.
CARD = {
    "name": "SmolLM2 135M",
    "description": "A small model for trying things out",
    "prompts": ["Begin a story about a lighthouse."],
}
# Answers need not be long to be seen; a model with a card of its own may say otherwise.
SHORT = json.dumps({"max_tokens": 40})


# A machine that is busy with other things is no failure.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def artifacts():
    """The folder of pictures and logs, without those of an earlier run; what else is in it stays."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for old in [f for pattern in ("*.png", "*.log", "*.yaml") for f in ARTIFACTS.glob(pattern)]:
        old.unlink()
    for old in ("webui", "older"):
        shutil.rmtree(ARTIFACTS / old, ignore_errors=True)
    return ARTIFACTS


class EntropyServer:
    """`qr-gateway entropy serve` on an address that stays the same when it is started again."""

    def __init__(self, folder):
        self.address = f"127.0.0.1:{free_port()}"
        command = [PROGRAM, "entropy", "serve", "--source", "system", "--listen", self.address]
        self.process = Process("entropy server", command, folder / "entropy.log")

    def start(self):
        self.process.start()

    def kill(self):
        self.process.kill()

    def stop(self):
        self.process.stop()


@pytest.fixture(scope="session")
def entropy_server(artifacts):
    server = EntropyServer(artifacts)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def gateway(artifacts, entropy_server):
    lab = {"type": "grpc", "address": entropy_server.address, "recover_min": "100ms", "recover_max": "200ms"}
    config = {
        "models": [
            # Looking ahead unless told otherwise, so that it shows where something is not.
            {
                "id": "smollm2",
                "path": os.environ["QR_E2E_MODEL"],
                "workers": 2,
                "context": 4096,
                "defaults": {"qr_alpha": 0.3},
                **CARD,
            },
            {"id": "words", "backend": "fake"},
        ],
        "entropy": {
            "sources": [
                {"name": "lab", **lab, "policy": "fallback", "fallback": "system"},
                {"name": "lab-strict", **lab, "policy": "strict"},
            ]
        },
    }
    gateway = Gateway(artifacts, config)
    try:
        yield gateway.start()
    finally:
        gateway.stop()


@pytest.fixture(scope="session")
def second(artifacts):
    gateway = Gateway(artifacts, {"models": [{"id": "words", "backend": "fake"}]}, "second")
    try:
        yield gateway.start()
    finally:
        gateway.stop()


@pytest.fixture(scope="session")
def standin():
    with StandIn() as standin:
        yield standin


@pytest.fixture(scope="session")
def webui(artifacts, gateway, second, standin):
    connections = [
        connection(gateway.url + "/v1"),
        connection(second.url + "/v1", prefix_id="second"),
        # Its list of models is a web page.
        connection(standin.url + "/list"),
        # Open WebUI does not ask these for their models, as they are listed by hand.
        connection(standin.url + "/html", model_ids=["html"]),
        connection(standin.url + "/html200", model_ids=["html200"]),
        connection(standin.url + "/slow", model_ids=["slow"]),
        connection(f"http://127.0.0.1:{free_port()}/v1", model_ids=["down"]),
    ]
    webui = OpenWebUI(artifacts / "webui", connections, DEFAULT_MODEL_PARAMS=SHORT, TASK_MODEL_PARAMS=SHORT)
    try:
        yield webui.start()
    finally:
        webui.stop()


@pytest.fixture(scope="session")
def admin(webui):
    api = webui.sign_in(ADMIN)
    api.quiet()
    api.set_tasks(False)
    api.models()
    return api


@pytest.fixture(scope="session")
def install(webui):
    """Runs `qr-gateway filter install` and returns what it said."""

    def install(*flags):
        command = [PROGRAM, "filter", "install", "--url", webui.url, "--email", ADMIN["email"], *flags]
        env = {**os.environ, "OPENWEBUI_PASSWORD": ADMIN["password"]}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return install


@pytest.fixture(scope="session")
def cards(admin, install):
    """Cards of all models, which everybody may read, with the slider for looking ahead."""
    install("--models", "--public", "--controls")
    return admin.models()


@pytest.fixture(scope="session")
def user(webui, admin, cards):
    """A user without rights."""
    admin.add_user(USER)
    api = webui.sign_in(USER)
    api.quiet()
    return api


@pytest.fixture(scope="session")
def element():
    """The function as the file to import has it."""
    return json.loads(FILTER_FILE.read_text())[0]


@pytest.fixture
def filter(admin, element):
    """The filter, switched on for every model, with no valve set; returns what sets them."""
    admin.ensure_filter(element)
    admin.set_valves()
    yield admin.set_valves
    admin.set_valves()


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ["QR_E2E_CHROMIUM"], args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def new_context(browser, webui):
    """Makes a browser of its own for whom the token is given; nobody's without one."""
    contexts = []

    def new_context(api=None):
        context = browser.new_context(viewport={"width": 1280, "height": 800}, storage_state=storage(webui, api))
        context.set_default_timeout(20_000)
        # Nothing beyond this machine is asked for.
        context.route(lambda url: url.startswith("http") and "//127.0.0.1" not in url, lambda route: route.abort())
        contexts.append(context)
        return context

    yield new_context
    for context in contexts:
        context.close()


def storage(webui, api):
    if api is None:
        return None
    return {"cookies": [], "origins": [{"origin": webui.url, "localStorage": [{"name": "token", "value": api.token}]}]}


@pytest.fixture(scope="session")
def admin_context(new_context, admin):
    return new_context(admin)


@pytest.fixture
def page(admin_context, request):
    """A page of the administrator."""
    yield from shown(admin_context, request)


@pytest.fixture(scope="session")
def user_context(new_context, user):
    return new_context(user)


@pytest.fixture
def user_page(user_context, request):
    """A page of the user without rights."""
    yield from shown(user_context, request)


def shown(context, request):
    page = context.new_page()
    request.node.pages = [*getattr(request.node, "pages", []), page]
    yield page
    page.close()


@pytest.fixture
def functions(page, webui):
    return Functions(page, webui.url)


@pytest.fixture
def chat(page, webui):
    return Chat(page, webui.url)


@pytest.fixture
def screenshot(artifacts):
    """Keeps a picture of the page; those that the guide shows are copied there when QR_E2E_UPDATE is set."""

    def screenshot(page, name, guide=False, left=0, height=None, of=None):
        """Of the whole page, a part of it, or what can be seen of an element."""
        path, size = artifacts / f"{name}.png", page.viewport_size
        clip = {"x": left, "y": 0, "width": size["width"] - left, "height": height or size["height"]}
        if of is not None:
            box = of.bounding_box()
            top = max(box["y"], 0)
            clip = {**box, "y": top, "height": min(box["y"] + box["height"], size["height"]) - top}
        page.screenshot(path=path, animations="disabled", clip=clip)
        if guide and os.environ.get("QR_E2E_UPDATE"):
            IMAGES.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, IMAGES / path.name)

    return screenshot


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and report.failed:
        for i, page in enumerate(getattr(item, "pages", [])):
            page.screenshot(path=ARTIFACTS / f"FAILED-{item.name}-{i}.png")
    return report
