"""Answers of SmolLM2 on vLLM, through the gateway with its sidecar inside, asked for by the stock client."""

import concurrent.futures

import openai
import pytest

import answers

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
STORY = [{"role": "user", "content": "Tell me a story about a lighthouse."}]
WATCHED = {"qr_diagnostic_mode": True, "return_token_ids": True}


def chat(client, messages=STORY, model="small", max_tokens=24, stream=False, **extra):
    """A chat, whole or as a stream, as (text, token ids, the qr object, finish reason)."""
    got = client.chat.completions.create(
        model=model, messages=messages, max_tokens=max_tokens, stream=stream, extra_body=extra
    )
    if not stream:
        choice = got.choices[0]
        return (
            choice.message.content,
            getattr(choice, "token_ids", None),
            getattr(got, "qr", None),
            choice.finish_reason,
        )
    text, ids, qr, reason = "", [], None, None
    for chunk in got:
        qr = getattr(chunk, "qr", None) or qr
        for choice in chunk.choices:
            text, ids, reason = (
                text + (choice.delta.content or ""),
                ids + (getattr(choice, "token_ids", None) or []),
                choice.finish_reason or reason,
            )
    return text, ids, qr, reason


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "fields", [{"qr_temperature": 0.9}, {"qr_temperature_strategy": "edt", "qr_min_p": 0.05}], ids=["fixed", "edt"]
)
def test_tokens_are_those_of_the_records(client, small, stream, fields):
    text, ids, qr, _ = chat(client, stream=stream, **fields, **WATCHED)
    assert text and len(ids) > 4
    assert [r["token_id"] for r in qr["records"]] == ids
    assert [r["step"] for r in qr["records"]] == list(range(len(ids)))
    assert qr["decoder"] == "plain" and qr["tokens"] == len(ids) and qr["entropy_source"] == "system"
    assert not qr.get("native_tokens") and not qr.get("mismatched_tokens")
    assert all(0 < r["u_value"] < 1 and r["entropy_source_used"] == "system" for r in qr["records"])


def test_end_of_text_is_one_of_them(client, small):
    _, ids, qr, reason = chat(client, QUESTION, max_tokens=60, temperature=0, qr_decoder="plain", **WATCHED)
    assert reason == "stop" and [r["token_id"] for r in qr["records"]] == ids and ids[-1] == 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_completions(client, small, stream):
    got = client.completions.create(
        model="small", prompt="The sea was", max_tokens=16, stream=stream, extra_body={"qr_top_k": 40, **WATCHED}
    )
    answers = list(got) if stream else [got]
    ids = [t for a in answers for c in a.choices for t in getattr(c, "token_ids", None) or []]
    qr = next(a.qr for a in reversed(answers) if getattr(a, "qr", None))
    assert "".join(c.text for a in answers for c in a.choices).strip()
    assert [r["token_id"] for r in qr["records"]] == ids


def test_plain_requests_pass_untouched(client, small):
    fields = dict(prompt="Once upon a time", max_tokens=12, temperature=0)
    got = client.completions.create(model="small", **fields).model_dump()
    direct = small.http.post("/v1/completions", json={"model": "small", **fields}).json()
    assert got["choices"][0]["text"] == direct["choices"][0]["text"]
    assert got.get("qr") is None and got["system_fingerprint"] == direct["system_fingerprint"]


def test_seed_makes_the_same_text(client, small):
    first = chat(client, seed=5, qr_temperature=1)
    assert (
        chat(client, seed=5, qr_temperature=1)[0] == first[0] == chat(client, seed=5, qr_temperature=1, stream=True)[0]
    )
    assert chat(client, seed=6, qr_temperature=1)[0] != first[0]
    assert first[2]["entropy_source"] == "seed"


def test_mixed_with_plain_requests(client, small):
    """Four of each at once: each answers as it does alone."""
    topics = ["boats", "trains", "birds", "clouds"]
    asked = [dict(messages=[{"role": "user", "content": f"Tell me about {t}."}], max_tokens=16) for t in topics]
    asked = [{**a, "seed": i, "qr_temperature": 1.0, **WATCHED} for i, a in enumerate(asked)] + [
        {**a, "temperature": 0} for a in asked
    ]
    alone = [chat(client, **a)[0] for a in asked]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda a: chat(client, stream=True, **a), asked))
    assert [t[0] for t in together] == alone
    for _, ids, qr, _ in together[:4]:
        assert [r["token_id"] for r in qr["records"]] == ids
    assert all(qr is None for _, _, qr, _ in together[4:])


def test_several_choices(client, small):
    got = client.chat.completions.create(
        model="small", messages=STORY, max_tokens=10, n=3, seed=1, extra_body={"qr_temperature": 1}
    )
    texts = [c.message.content for c in got.choices]
    assert [c.index for c in got.choices] == [0, 1, 2] and len(set(texts)) == 3
    assert chat(client, max_tokens=10, seed=1, qr_temperature=1)[0] == texts[0]
    assert got.qr["tokens"] == got.usage.completion_tokens == 30


PRESETS = ["adaptive", "creative_sampling", "greedy", "normal_t1", "plain", "research_strict"]
STRATEGIES = """fixed edt hvh_drift tt_exchange evdt_tt gdt dynatemp belltemp mix_temperatures ring_buffer_ar
coherence_gate""".split()


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(client, small, preset):
    _, ids, qr, _ = chat(client, max_tokens=6, qr_preset=preset, **WATCHED)
    assert qr["preset"] == preset and [r["token_id"] for r in qr["records"]] == ids
    assert {r["preset_active"] for r in qr["records"]} == {preset}


def test_strategies_are_all_there(gateway, client):
    rows = {p["key"]: p for p in gateway.http.get("/v1/qr/parameters").json()["data"]}
    assert rows["qr_temperature_strategy"]["enum"] == STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies(client, small, strategy):
    _, ids, qr, _ = chat(client, max_tokens=6, qr_temperature_strategy=strategy, seed=3, **WATCHED)
    assert qr["strategy"] == strategy and [r["token_id"] for r in qr["records"]] == ids
    assert all(r["temperature_strategy"] == strategy and r["shannon_entropy"] > 0 for r in qr["records"])


def test_penalties(client, small):
    """A penalty of 2 for every time that a token was there lets greedy text repeat little."""
    prompt = "one two three one two three one two three one two three"
    fields = dict(model="small", prompt=prompt, max_tokens=24, temperature=0)
    repeated, varied = (
        client.completions.create(
            **fields,
            extra_body={"qr_decoder": "plain", "return_token_ids": True, "frequency_penalty": p, "presence_penalty": p},
        )
        .choices[0]
        .token_ids
        for p in (0, 2)
    )
    assert len(set(varied)) > 1.5 * len(set(repeated))


def test_bias(client, small):
    got = client.completions.create(
        model="small",
        prompt="The",
        max_tokens=4,
        logit_bias={"260": 100},
        extra_body={"qr_decoder": "plain", "return_token_ids": True},
    )
    assert got.choices[0].token_ids == [260] * 4


@pytest.mark.parametrize("prompt", ["The capital of France is", "Water boils at", "def add(a, b):\n    return"])
def test_greedy_text_is_that_of_llama(client, small, prompt):
    """Up to the first near tie, by vLLM's own account: llama.cpp rounds what it computes with the file's weights."""
    texts = {
        m: client.completions.create(
            model=m, prompt=prompt, max_tokens=16, temperature=0, extra_body={"qr_decoder": "plain"}
        )
        .choices[0]
        .text
        for m in ("small", "llama")
    }
    if texts["small"] == texts["llama"]:
        return
    got = (
        client.completions.create(model="small", prompt=prompt, max_tokens=16, temperature=0, logprobs=2)
        .choices[0]
        .logprobs
    )
    text = ""
    for token, top in zip(got.tokens, got.top_logprobs):
        if not texts["llama"].startswith(text + token):
            first, second = sorted(top.values(), reverse=True)[:2]
            assert text.strip() and first - second < 0.5, f"{texts} part at {text!r}, where vLLM is sure"
            return
        text += token


def test_log_probabilities_stay_the_models(client, small):
    """Of the tokens that were chosen here, as the model has them before any choice."""
    extra = {"qr_temperature": 1.5, "qr_top_k": 100, "return_token_ids": True}
    choice = client.completions.create(
        model="small", prompt="The sea", max_tokens=1, logprobs=5, extra_body=extra
    ).choices[0]
    own = small.top(small.http.post("/tokenize", json={"model": "small", "prompt": "The sea"}).json()["tokens"])
    assert choice.logprobs.token_logprobs[0] == pytest.approx(own[choice.token_ids[0]], abs=1e-3)


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"qr_temprature": 1}, "qr_temperature"),
        ({"qr_temperature": 9}, "qr_temperature"),
        ({"qr_preset": "none"}, "qr_preset"),
        ({"qr_alpha": 0.3}, "qr_"),
        ({"qr_entropy_source": "nowhere"}, "nowhere"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_bad_parameters_are_refused(client, small, fields, named, stream):
    with pytest.raises(openai.BadRequestError, match=named):
        chat(client, stream=stream, **fields)


def test_cancel_reaches_vllm(gateway, client, small):
    """It is told by the tokens that it makes no more, as vLLM counts no request that is broken off."""
    before = small.metric("vllm:generation_tokens_total")
    fields = {"stream": True, "ignore_eos": True, "qr_temperature": 1}
    answer = answers.chat(gateway, "Tell me a story.", "small", 400, lambda a: len(a.ids) >= 3, **fields)
    small.wait_idle()
    made = small.metric("vllm:generation_tokens_total") - before
    assert len(answer.ids) <= made < 100
