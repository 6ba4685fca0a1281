"""The stock OpenAI client through a gateway (QR_URL) that passes requests on.

echo is a server that sends its request back; far and farwords are models of another gateway, of a real engine and of words.
llama, where QR_LLAMA is set, is a model of llama-server.
"""

import json
import os
import threading

import httpx
import openai
import pytest

HELLO = [{"role": "user", "content": "Name a colour."}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "<b>", "parameters": {"type": "object", "x-big": 12345678901234567890}}}]


@pytest.fixture(scope="module")
def client() -> openai.OpenAI:
    return openai.OpenAI(base_url=os.environ["QR_URL"] + "/v1", api_key="of-the-client", timeout=120, max_retries=0)


def joined(stream) -> str:
    return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


@pytest.mark.parametrize("stream", [False, True])
def test_request_survives(client, stream):
    body = {"tools": TOOLS, "tool_choice": "required", "n": 2, "logit_bias": {"5": -1.5}, "response_format": {"type": "json_object"}}
    extra = {"top_n_sigma": 0.1000000000000000055, "mirostat": {"a": [None, 1e300]}, "qr_client": "test/1"}
    r = client.chat.completions.create(model="echo", messages=HELLO, stream=stream, extra_body=extra, **body)
    sent = json.loads(joined(r) if stream else r.choices[0].message.content)
    seen = sent["body"]
    for key, value in body.items():
        assert seen[key] == value
    assert seen["top_n_sigma"] == 0.1 and seen["mirostat"] == {"a": [None, 1e300]}
    assert seen["messages"] == HELLO and seen["model"] == "there" and "qr_client" not in seen
    assert sent["authorization"] == "Bearer of-the-gateway"


def test_answer_survives(client):
    r = client.chat.completions.create(model="echo", messages=HELLO)
    assert r.model == "echo" and r.id == "chatcmpl-echo" and r.system_fingerprint == "fp_far"
    assert r.choices[0].message.tool_calls[0].function.arguments == '{"city":"<Paris>"}'
    assert r.choices[0].message.model_extra["reasoning_content"] == "hm" and r.usage.model_extra["cost"] == 0.1
    raw = client.chat.completions.with_raw_response.create(model="echo", messages=HELLO).text
    assert '"new": 12345678901234567890, "fraction": 0.10' in raw
    chunks = list(client.chat.completions.create(model="echo", messages=HELLO, stream=True))
    assert {c.model for c in chunks} == {"echo"} and chunks[-1].usage.prompt_tokens == 3
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "tool_calls"


def test_limit(client):
    with pytest.raises(openai.RateLimitError) as e:
        client.chat.completions.create(model="echo", messages=HELLO, user="limit")
    assert e.value.response.headers["Retry-After"] == "7" and e.value.code == "rate_limit_exceeded" and "slow down" in e.value.message


def test_refusals(client):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="echo", messages=HELLO, user="invalid")
    assert e.value.param == "user" and e.value.code == "bad_user" and "no such user" in e.value.message
    with pytest.raises(openai.InternalServerError) as e:
        client.chat.completions.create(model="echo", messages=HELLO, user="key")
    assert e.value.status_code == 502 and e.value.code == "upstream_key_refused" and "of-the-gateway" not in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="echo", messages=HELLO, extra_body={"qr_alpha": 0.5})
    assert e.value.param == "qr_alpha" and "upstream" in e.value.message


def test_cut_off(client):
    with pytest.raises(openai.APIError) as e:
        joined(client.chat.completions.create(model="echo", messages=HELLO, stream=True, user="cut"))
    assert e.value.code == "upstream_lost"


@pytest.mark.parametrize("stream", [False, True])
def test_leaving(client, stream):
    """The server must see that the client left, before it has sent anything."""
    with pytest.raises(openai.APITimeoutError):
        slow = client.with_options(timeout=httpx.Timeout(1.0))
        joined(slow.chat.completions.create(model="echo", messages=HELLO, stream=stream, user="hang"))
    with httpx.Client(base_url=os.environ["QR_ECHO"], timeout=10) as http:
        assert http.get("/left").text == "left"


def test_another_gateway(client):
    extra = {"qr_alpha": 0.4, "qr_seed": 7}
    first = client.chat.completions.create(model="far", messages=HELLO, max_tokens=12, extra_body=extra)
    qr = first.usage.model_extra["qr"]
    assert first.model == "far" and qr["decoder"] == "lookahead" and qr["alpha_max"] == 0.4 and qr["entropy_source"] == "seed"
    again = client.chat.completions.create(model="far", messages=HELLO, max_tokens=12, extra_body=extra, stream=True)
    assert joined(again) == first.choices[0].message.content
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="far", messages=HELLO, extra_body={"qr_alpha": 7})
    assert e.value.param == "qr_alpha" and "-1 to 1" in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="far", messages=[{"role": "user", "content": "word " * 2000}])
    assert e.value.code == "context_length_exceeded"


def test_task(client):
    r = client.chat.completions.create(model="farwords:task", messages=HELLO, max_tokens=4, extra_body={"qr_alpha": 0.4})
    assert r.model == "farwords" and r.usage.model_extra["qr"]["task"] == "alias" and r.usage.model_extra["qr"]["decoder"] == "plain"


def test_completions(client):
    r = client.completions.create(model="far", prompt="The sky is", max_tokens=4, extra_body={"qr_decoder": "plain", "seed": 1})
    assert r.object == "text_completion" and r.model == "far" and r.usage.completion_tokens == 4


def test_many_at_once(client):
    alone = {i: ask(client, i) for i in range(8)}
    got = {}
    threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, ask(client, i % 8))) for i in range(48)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == {i: alone[i % 8] for i in range(48)}


def ask(client, i):
    messages = [{"role": "user", "content": f"I am number {i}."}]
    return client.chat.completions.create(model="farwords", messages=messages, max_tokens=20).choices[0].message.content


@pytest.mark.skipif("QR_LLAMA" not in os.environ, reason="no llama-server")
def test_llama_server(client):
    whole = client.chat.completions.create(model="llama", messages=HELLO, max_tokens=16, temperature=0, extra_body={"top_n_sigma": 1.5})
    assert whole.model == "llama" and whole.usage.completion_tokens == 16 and "timings" in whole.model_extra
    stream = client.chat.completions.create(model="llama", messages=HELLO, max_tokens=16, temperature=0, stream=True, logprobs=True, top_logprobs=2)
    chunks = list(stream)
    assert joined(chunks) == whole.choices[0].message.content and {c.model for c in chunks} == {"llama"}
    assert any(c.choices and c.choices[0].logprobs and len(c.choices[0].logprobs.content[0].top_logprobs) == 2 for c in chunks)
    schema = {"type": "json_schema", "json_schema": {"name": "c", "schema": {"type": "object", "properties": {"colour": {"type": "string", "maxLength": 9}}, "required": ["colour"]}}}
    made = client.chat.completions.create(model="llama", messages=HELLO, max_tokens=60, temperature=0, response_format=schema)
    assert "colour" in json.loads(made.choices[0].message.content)
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="llama", messages=[{"role": "user", "content": "word " * 3000}])
    assert e.value.code == "context_length_exceeded"
