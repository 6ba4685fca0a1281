"""What a user of openai-python does first, second and third."""

import concurrent.futures
import json
import re

import openai
import pytest

MODEL = "smollm2"
SHORT = [{"role": "user", "content": "Name three colours."}]
TALE = [{"role": "user", "content": "Begin a story about a lighthouse."}]


def chat(client, **kw):
    kw.setdefault("messages", SHORT)
    kw.setdefault("max_tokens", 16)
    return client.chat.completions.create(model=MODEL, **kw)


def text(answer) -> str:
    return answer.choices[0].message.content


def stream_text(chunks) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_list_and_retrieve_models(client):
    assert MODEL in [m.id for m in client.models.list().data]
    m = client.models.retrieve(MODEL)
    assert m.id == MODEL and m.object == "model"


def test_chat(client):
    a = chat(client)
    assert a.choices[0].message.role == "assistant" and text(a).strip()
    assert a.choices[0].finish_reason in ("stop", "length")
    assert a.usage.prompt_tokens > 5 and 0 < a.usage.completion_tokens <= 16
    assert a.usage.total_tokens == a.usage.prompt_tokens + a.usage.completion_tokens


def test_chat_stream_is_well_formed(client):
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({c.id for c in chunks}) == len({c.created for c in chunks}) == 1
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert [r for r in reasons if r] == reasons[-1:]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert all(c.usage is None for c in chunks[:-1])
    assert chunks[-1].model_extra["qr"]["decoder"] in ("plain", "lookahead")


def test_no_usage_unless_asked(client):
    chunks = list(chat(client, stream=True))
    assert all(c.usage is None for c in chunks) and all(c.choices for c in chunks)


def test_stream_and_whole_say_the_same(client):
    whole = text(chat(client, seed=5, messages=TALE))
    assert stream_text(chat(client, seed=5, messages=TALE, stream=True)) == whole


def test_completion(client):
    a = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=8, temperature=0)
    assert "Paris" in a.choices[0].text
    assert a.usage.prompt_tokens > 0


def test_completion_stream(client):
    kw = dict(model=MODEL, prompt="Once upon a time", max_tokens=12, seed=1)
    parts = list(client.completions.create(stream=True, **kw))
    assert "".join(p.choices[0].text for p in parts) == client.completions.create(**kw).choices[0].text
    assert parts[-1].choices[0].finish_reason == "length"


def test_completion_from_token_ids(client, http):
    a = client.completions.create(model=MODEL, prompt=[504, 3575, 282, 4649, 314], max_tokens=4, temperature=0)
    assert a.usage.prompt_tokens == 5


def test_stop_string_never_shows(client):
    free = text(chat(client, seed=3, messages=TALE, max_tokens=40))
    words = re.findall(r"[a-z]{4,}", free)
    stop = words[len(words) // 2]
    for stream in (False, True):
        a = chat(client, seed=3, messages=TALE, max_tokens=40, stop=[stop], stream=stream)
        got = stream_text(a) if stream else text(a)
        assert got == free[: free.index(stop)]


def test_stop_gives_finish_reason_stop(client):
    a = chat(client, seed=3, messages=TALE, max_tokens=200, stop=" the")
    assert a.choices[0].finish_reason == "stop"


def test_length(client):
    a = chat(client, max_tokens=2, messages=TALE)
    assert a.choices[0].finish_reason == "length" and a.usage.completion_tokens == 2


def test_max_tokens_beyond_the_context_is_no_error(client):
    a = chat(client, max_tokens=1_000_000, stop=["."], messages=TALE)
    assert a.choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("extra", [{"qr_decoder": "plain"}, {"qr_alpha": 0.3}, {"qr_alpha": 0.3, "qr_lookahead": "bounded"}])
def test_seed_decides_the_text(client, extra):
    kw = dict(messages=TALE, max_tokens=10, extra_body=extra)
    runs = {text(chat(client, seed=11, **kw)) for _ in range(2)}
    assert len(runs) == 1
    others = {text(chat(client, seed=s, **kw)) for s in range(12, 15)}
    assert len(others - runs) >= 2


def test_seeded_text_is_the_same_in_company(client):
    kw = dict(messages=TALE, max_tokens=12, extra_body={"qr_alpha": 0.2})
    alone = {s: text(chat(client, seed=s, **kw)) for s in range(4)}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = {s: pool.submit(chat, client, seed=s, **kw) for s in alone}
    assert {s: text(j.result()) for s, j in jobs.items()} == alone


def test_lazy_and_full_say_the_same(client):
    got = {m: text(chat(client, seed=2, messages=TALE, extra_body={"qr_alpha": 0.3, "qr_lookahead": m})) for m in ("lazy", "full")}
    assert got["lazy"] == got["full"]


def qr(answer) -> dict:
    return answer.model_extra["qr"]


def test_alpha_turns_lookahead_on(client):
    q = qr(chat(client, extra_body={"qr_alpha": 0.3}))
    assert q["decoder"] == "lookahead" and q["curve"] == "article"
    assert q["alpha_min"] == q["alpha_max"] == 0.3
    assert 0.9 < q["peeks_per_token"] < 20
    assert q["entropy_source"] == "system" and q["u_source"] == "zscore_mean"


def test_wave(client):
    q = qr(chat(client, extra_body={"qr_wave_period": 8, "qr_wave_amplitude": 0.4, "qr_wave_offset": -0.1}))
    assert q["alpha_min"] == pytest.approx(-0.5, abs=0.01) and q["alpha_max"] == pytest.approx(0.3, abs=0.01)


def test_plain_and_seed_are_reported(client):
    q = qr(chat(client, seed=1, extra_body={"qr_decoder": "plain"}))
    assert (q["decoder"], q["entropy_source"], q["u_source"]) == ("plain", "seed", "seeded")


def test_greedy_needs_no_entropy(client):
    a, b = (chat(client, temperature=0, extra_body={"qr_decoder": "plain"}) for _ in range(2))
    assert text(a) == text(b) and qr(a)["entropy_source"] == "none"


def test_parameters_may_come_in_extra_args(client):
    q = qr(chat(client, extra_body={"extra_args": {"qr_alpha": -0.25}}))
    assert q["alpha_min"] == -0.25


BAD = {
    "no messages": (dict(messages=[]), "messages"),
    "unknown role": (dict(messages=[{"role": "wizard", "content": "x"}]), "wizard"),
    "content of a wrong type": (dict(messages=[{"role": "user", "content": 7}]), "content"),
    "temperature as text": (dict(temperature="hot"), "temperature"),
    "negative temperature": (dict(temperature=-1), "temperature"),
    "huge temperature": (dict(temperature=1e300), "temperature"),
    "top_p over one": (dict(top_p=1.5), "top_p"),
    "no tokens asked": (dict(max_tokens=0), "max_tokens"),
    "misspelt key": (dict(extra_body={"qr_alhpa": 0.3}), "qr_alpha"),
    "alpha out of range": (dict(extra_body={"qr_alpha": 2}), "qr_alpha"),
    "k of nothing": (dict(extra_body={"qr_lookahead_k": 0}), "qr_lookahead_k"),
    "unknown curve": (dict(extra_body={"qr_curve": "banana"}), "article"),
    "alpha and a wave": (dict(extra_body={"qr_alpha": 0.1, "qr_wave_period": 8}), "qr_alpha"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests(client, name, stream):
    kw, mentions = BAD[name]
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, **{"stream": stream, **kw})
    assert e.value.status_code == 400 and e.value.body["type"] == "invalid_request_error"
    assert mentions in e.value.body["message"]


def test_prompt_over_the_context(client):
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, messages=[{"role": "user", "content": "word " * 20_000}])
    assert e.value.code == "context_length_exceeded"
    assert len(re.findall(r"\d{4,}", e.value.body["message"])) == 2


def test_token_id_out_of_range(client):
    for bad in ([-1], [10_000_000]):
        with pytest.raises(openai.BadRequestError, match="token"):
            client.completions.create(model=MODEL, prompt=bad, max_tokens=1)


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError, match=MODEL) as e:
        client.chat.completions.create(model="gpt-99", messages=SHORT)
    assert e.value.code == "model_not_found"


RAW = {
    "absent messages": (b'{"model":"smollm2"}', 400),
    "not JSON": (b"hello", 400),
    "not an object": (b"[]", 400),
    "empty": (b"", 400),
    "cut short": (b'{"model":"smollm2","messages":[', 400),
    "NaN": (b'{"model":"smollm2","temperature":NaN,"messages":[{"role":"user","content":"x"}]}', 400),
    "invalid UTF-8": (b'{"model":"smollm2","messages":[{"role":"user","content":"\xff\xfe"}]}', 400),
    "deep": (b'{"model":"smollm2","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "20 MB": (b'{"model":"smollm2","x":"' + b"a" * 20_000_000 + b'"}', 413),
}


@pytest.mark.parametrize("name", RAW)
def test_raw_bodies(http, name):
    body, status = RAW[name]
    r = http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert r.status_code == status, r.text
    assert set(r.json()["error"]) == {"message", "type", "param", "code"}
    assert http.get("/healthz").status_code == 200


def test_health_ready_metrics(http):
    assert http.get("/healthz").status_code == 200
    assert http.get("/readyz").status_code == 200
    assert "qr_" in http.get("/metrics").text


def test_parameters_page(http):
    keys = {f["key"] for f in http.get("/v1/qr/parameters").json()["data"]}
    assert {"qr_alpha", "qr_curve", "qr_lookahead_k"} <= keys


def test_utf8_is_never_split(http):
    body = {
        "model": MODEL, "stream": True, "max_tokens": 48, "seed": 4, "temperature": 1.6,
        "messages": [{"role": "user", "content": "Write emojis and Chinese: 你好 🙂"}],
    }
    with http.stream("POST", "/v1/chat/completions", json=body) as r:
        assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream")
        raw = b"".join(r.iter_bytes())
    lines = [line for line in raw.split(b"\n") if line.startswith(b"data: ")]
    assert lines[-1] == b"data: [DONE]"
    for line in lines[:-1]:
        json.loads(line[6:].decode("utf-8", errors="strict"))
