"""The stock OpenAI client, which tries again by itself, against a gateway under load (QR_URL): nothing runs twice.

QR_UPSTREAM is the server behind model far; it counts what it runs by the field user. Behind gone there is no server.
"""

import collections
import concurrent.futures
import os

import httpx
import openai
import pytest


@pytest.fixture(scope="module")
def client() -> openai.OpenAI:
    return openai.OpenAI(base_url=os.environ["QR_URL"] + "/v1", api_key="of-the-client", timeout=60)


def ran() -> dict:
    return httpx.get(os.environ["QR_UPSTREAM"] + "/ran", timeout=10).json()


def ask(client, user, stream=False, model="far"):
    """What came, and how often it was tried again."""
    r = client.chat.completions.with_raw_response.create(model=model, user=user, stream=stream, messages=[{"role": "user", "content": user}])
    answer = r.parse()
    if stream:
        return "".join(c.choices[0].delta.content or "" for c in answer if c.choices), r.retries_taken
    return answer.choices[0].message.content, r.retries_taken


def test_full(client):
    users = [f"full-{i}" for i in range(24)]
    with concurrent.futures.ThreadPoolExecutor(len(users)) as pool:
        got = dict(zip(users, pool.map(lambda i: ask(client, users[i], stream=i % 2 == 0), range(len(users)))))
    assert {u: text for u, (text, _) in got.items()} == {u: "echo of " + u for u in users}
    again = collections.Counter(n for _, n in got.values())
    assert again[0] and sum(again[n] for n in again if n), f"tries by request: {again}"
    seen = ran()
    assert {u: seen.get(u, 0) for u in users} == {u: 1 for u in users}


@pytest.mark.parametrize("user, stream", [("broke", True), ("broke", False), ("cut", True)])
def test_failed(client, user, stream):
    """The server fails once it has run, or in mid-answer. A stream is told of it, a reply says so in its header: another try might run it again."""
    user += "-stream" if stream else ""
    with pytest.raises(openai.APIError):
        ask(client, user, stream)
    assert ran()[user] == 1


def test_gone(client):
    """Nothing ran, so it is worth another try; the log says how many there were."""
    with pytest.raises(openai.InternalServerError) as e:
        ask(client, "gone", model="gone")
    assert e.value.code == "upstream_unreachable" and "gone" not in ran()
