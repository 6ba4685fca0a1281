"""A real Open WebUI, and its API as an administrator's script would call it."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import httpx

from processes import Process, free_port

FILTER = "qr_gateway_filter"
ADMIN = {"email": "admin@example.org", "password": "correct horse battery", "name": "Ada"}
TEMPLATES = {
    "X-OpenWebUI-Task": "{{TASK}}",
    "X-OpenWebUI-Chat-Id": "{{CHAT_ID}}",
    "X-OpenWebUI-Message-Id": "{{MESSAGE_ID}}",
}


def connection(url, **settings):
    """One OpenAI connection: its URL and what the connection's dialog would hold."""
    return url, {"headers": TEMPLATES, **settings}


def environment(folder, connections, more):
    configs = {str(i): settings for i, (_, settings) in enumerate(connections)}
    return {
        "DATA_DIR": str(folder),
        "WEBUI_SECRET_KEY": "only-for-tests-and-therefore-not-secret",
        "ENABLE_PERSISTENT_CONFIG": "False",
        "OFFLINE_MODE": "true",
        "HF_HUB_OFFLINE": "1",
        "RAG_EMBEDDING_ENGINE": "openai",
        "ENABLE_OLLAMA_API": "False",
        "ENABLE_EVALUATION_ARENA_MODELS": "False",
        "ENABLE_FORWARD_USER_INFO_HEADERS": "True",
        "OPENAI_API_BASE_URLS": ";".join(url for url, _ in connections),
        "OPENAI_API_KEYS": ";".join("none" for _ in connections),
        "OPENAI_API_CONFIGS": json.dumps(configs),
        "WEBUI_ADMIN_EMAIL": ADMIN["email"],
        "WEBUI_ADMIN_PASSWORD": ADMIN["password"],
        "WEBUI_ADMIN_NAME": ADMIN["name"],
        "SCARF_NO_ANALYTICS": "true",
        "DO_NOT_TRACK": "true",
        "ANONYMIZED_TELEMETRY": "false",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        **more,
    }


class OpenWebUI:
    def __init__(self, folder, connections, venv=Path(sys.prefix), **env):
        """More of its environment may be given by name."""
        data = folder / "data"
        data.mkdir(parents=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [venv / "bin" / "open-webui", "serve", "--host", "127.0.0.1", "--port", self.port]
        env = environment(data, connections, env)
        self.process = Process("Open WebUI", command, folder / "openwebui.log", env=env, cwd=data)

    def start(self):
        self.process.start()
        self.process.wait_until("is up", self._healthy, 120)
        return self

    def stop(self):
        self.process.stop()

    def _healthy(self):
        try:
            return httpx.get(self.url + "/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def sign_in(self, user):
        form = {"email": user["email"], "password": user["password"]}
        r = httpx.post(f"{self.url}/api/v1/auths/signin", json=form, timeout=30)
        r.raise_for_status()
        return API(self.url, r.json()["token"])


class API:
    """Calls of one signed-in user."""

    def __init__(self, url, token):
        self.token = token
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60)

    def get(self, path):
        return checked(self.http.get("/api" + path))

    def post(self, path, body=None):
        return checked(self.http.post("/api" + path, json=body if body is not None else {}))

    def quiet(self):
        """Marks the news of this version as read; their dialog lies over the page."""
        self.post("/v1/users/user/settings/update", {"ui": {"version": version("open-webui")}})

    def add_user(self, user):
        self.post("/v1/auths/add", {**user, "role": "user", "profile_image_url": "/user.png"})

    def set_tasks(self, on):
        """Titles, tags and follow-up questions of every chat."""
        names = ("ENABLE_TITLE_GENERATION", "ENABLE_TAGS_GENERATION", "ENABLE_FOLLOW_UP_GENERATION")
        self.post("/v1/tasks/config/update", {**self.get("/v1/tasks/config"), **dict.fromkeys(names, on)})

    def add_card(self, id, base=None, params=None, **capabilities):
        """Makes a model's card, which everybody may read; with a base it is a model of the workspace."""
        meta = self.models()[base or id]["info"]["meta"]
        meta = {**meta, "capabilities": {**meta["capabilities"], **capabilities}}
        grants = [{"principal_type": "user", "principal_id": "*", "permission": "read"}]
        form = {"id": id, "name": id, "base_model_id": base, "meta": meta, "params": params or {}, "access_grants": grants}
        self.post("/v1/models/create", form)
        self.models()

    def models(self):
        return {m["id"]: m for m in self.get("/models")["data"]}

    def function(self, name=FILTER):
        """The function as stored, or None. Open WebUI answers 401 for one that isn't there."""
        r = self.http.get(f"/api/v1/functions/id/{name}")
        return None if r.status_code in (401, 404) else checked(r)

    def ensure_filter(self, element):
        """Imports the filter as the page does, and switches it on for every model."""
        if self.function() is None:
            self.post("/v1/functions/create", element)
        if not self.function()["is_active"]:
            self.post(f"/v1/functions/id/{FILTER}/toggle")
        if not self.function()["is_global"]:
            self.post(f"/v1/functions/id/{FILTER}/toggle/global")

    def remove_filter(self):
        if self.function() is not None:
            checked(self.http.delete(f"/api/v1/functions/id/{FILTER}/delete"))

    def valves(self):
        return self.get(f"/v1/functions/id/{FILTER}/valves") or {}

    def set_valves(self, **valves):
        """Replaces what the administrator's valves store."""
        self.post(f"/v1/functions/id/{FILTER}/valves/update", valves)

    def set_user_valves(self, **valves):
        self.post(f"/v1/functions/id/{FILTER}/valves/user/update", valves)

    def chat(self, model, text, **keys):
        """One whole answer through the filters, as API callers get it."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": False, **keys}
        return self.post("/chat/completions", body)


def checked(response):
    if response.is_error:
        raise APIError(response)
    return response.json()


class APIError(Exception):
    def __init__(self, response):
        self.status, self.text = response.status_code, response.text
        super().__init__(f"{response.request.method} {response.request.url}: {self.status} {self.text[:500]}")
