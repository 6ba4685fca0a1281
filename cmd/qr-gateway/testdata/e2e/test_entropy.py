"""Sources, amplifiers, strategies, penalties and presets per request, with the stock client."""

import math

import openai
import pytest

MODEL = "smollm2"
TALE = [{"role": "user", "content": "Begin a story about a lighthouse."}]


def ask(client, max_tokens=8, **kw):
    extra = {k: kw.pop(k) for k in list(kw) if k.startswith("qr_")}
    answer = client.chat.completions.create(model=MODEL, messages=TALE, max_tokens=max_tokens, extra_body=extra, **kw)
    return answer.choices[0].message.content, answer.model_extra["qr"]


def choices(http, key):
    """The values that the parameter table has for a key."""
    rows = http.get("/v1/qr/parameters").json()["data"]
    return next(r["enum"] for r in rows if r["key"] == key)


def test_sources_by_name(client):
    for name, policy in (("system", "strict"), ("computed", "strict"), ("replaced", "fallback")):
        _, qr = ask(client, qr_entropy_source=name)
        assert (qr["entropy_source"], qr["policy"], qr["amplifier"]) == (name, policy, "zscore_mean")
        assert qr["tokens"] >= 1 and qr["entropy_bytes"] == 20480 * qr["tokens"]
        assert qr["fallback_tokens"] == (qr["tokens"] if name == "replaced" else 0)


def test_the_reference_alias_names_a_source(client):
    assert ask(client, qr_entropy_source_type="computed")[1]["entropy_source"] == "computed"


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_source(client, stream):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model=MODEL, messages=TALE, stream=stream, extra_body={"qr_entropy_source": "qrng"})
    assert e.value.param == "qr_entropy_source" and "computed" in e.value.message and "system" in e.value.message


@pytest.mark.parametrize("decoder", ["plain", "lookahead"])
def test_every_strategy(client, http, decoder):
    names = choices(http, "qr_temperature_strategy")
    assert len(names) >= 11
    for name in names:
        text, qr = ask(client, max_tokens=4, qr_temperature_strategy=name, qr_decoder=decoder, qr_entropy_source="computed")
        assert text and qr["strategy"] == name and qr["decoder"] == decoder


def test_every_amplifier(client, http):
    names = choices(http, "qr_amplifier")
    assert {"zscore_mean", "ecdf", "zscore_thought", "server"} <= set(names)
    for name in names:
        if name == "server":  # no source here makes numbers itself
            with pytest.raises(openai.BadRequestError, match="qr_amplifier"):
                ask(client, qr_amplifier=name, qr_entropy_source="computed")
            continue
        text, qr = ask(client, qr_amplifier=name, qr_entropy_source="computed", qr_sample_count=1024)
        assert text and qr["amplifier"] == name and ("calibration" in qr) == (name == "ecdf")
        assert ("thought" in qr) == (name == "zscore_thought")
        if name == "zscore_thought":
            assert qr["thought"]["bytes"] == qr["entropy_bytes"] and 0 < qr["thought"]["u"] < 1


def test_one_number_per_token_and_lookahead(client):
    with pytest.raises(openai.BadRequestError, match="qr_lookahead"):
        ask(client, qr_amplifier="ecdf", qr_alpha=0.3, qr_lookahead="lazy")
    assert ask(client, qr_amplifier="ecdf", qr_alpha=0.3, qr_lookahead="bounded", qr_sample_count=1024)[1]["amplifier"] == "ecdf"


def test_presets(client, http):
    names = [p["name"] for p in http.get("/v1/qr/presets").json()["data"]]
    assert "future_focus" in names and "chat_light" in names
    _, qr = ask(client, qr_preset="future_focus")
    assert qr["preset"] == "future_focus" and qr["decoder"] == "lookahead"
    _, qr = ask(client, qr_preset="future_focus", qr_decoder="plain")
    assert qr["preset"] == "future_focus" and qr["decoder"] == "plain"
    with pytest.raises(openai.BadRequestError, match="none_such"):
        ask(client, qr_preset="none_such")


@pytest.mark.parametrize("extra", [{}, {"qr_alpha": 0.3, "qr_lookahead_choice": "argmax"}])
def test_logit_bias(client, extra):
    free, _ = ask(client, seed=1, **extra)
    forced, qr = ask(client, seed=1, logit_bias={"28": 100}, qr_diagnostic_mode=True, **extra)
    assert forced != free and {r["token_id"] for r in qr["records"]} == {28}


def test_penalties(client):
    words = {"logit_bias": {"28": 20, "30": 18}, "temperature": 0, "qr_diagnostic_mode": True}
    same = [r["token_id"] for r in ask(client, **words)[1]["records"]]
    varied = [r["token_id"] for r in ask(client, presence_penalty=2, frequency_penalty=2, **words)[1]["records"]]
    assert len(set(same)) < len(set(varied))


def test_records(client):
    _, qr = ask(client, qr_diagnostic_mode=True, qr_entropy_source="computed", qr_temperature_strategy="edt")
    records = qr["records"]
    assert [r["step"] for r in records] == list(range(qr["tokens"]))
    for r in records:
        assert r["entropy_source_used"] == "computed" and not r["entropy_is_fallback"] and r["entropy_bytes"] == 20480
        assert 0 < r["u_value"] < 1 and 0 < r["token_prob"] <= 1 and r["temperature_strategy"] == "edt" and r["temperature_used"] > 0
        assert math.isclose(r["u_value"], 0.5 * math.erfc(-r["z_score"] / math.sqrt(2)), rel_tol=1e-9)
        assert len(r["entropy_sha256"]) == 64 and r["timestamp_ns"] > 10**18 and r["entropy_fetch_ms"] >= 0
    assert "records" not in ask(client)[1]


def test_bypass(client):
    _, qr = ask(client, qr_bypass=True, qr_temperature_strategy="edt", qr_entropy_source="computed")
    assert qr["strategy"] == "fixed" and qr["entropy_source"] == "system"


def test_source_page(http):
    page = {e["name"]: e for e in http.get("/v1/qr/entropy").json()["data"]}
    assert {"system", "computed", "replaced"} <= set(page) and page["system"]["default"]
    assert page["computed"]["type"] == "mock" and page["computed"]["draws"] > 0 and page["computed"]["mode"] == "ok"
    assert page["replaced"]["policy"] == "fallback" and page["replaced"]["fallback"] == "system" and page["replaced"]["degraded"]
    health = http.get("/health/entropy")
    assert health.status_code == 200 and health.json()["rpc_ok"] is True and health.json()["primary_name"] == "system"
    metrics = http.get("/metrics").text
    assert 'qr_gateway_entropy_draws_total{entropy_source="computed"}' in metrics and "qr_gateway_entropy_latency_seconds_bucket" in metrics


@pytest.mark.parametrize(
    "bad",
    [
        {"qr_sample_count": 10**9}, {"qr_sample_count": 0}, {"qr_temperature_strategy": "hot"}, {"qr_amplifier": 3}, {"qr_entropy_source": 7},
        {"qr_population_std": 0}, {"qr_uniform_clamp_epsilon": 1}, {"qr_draw_block_bytes": -1}, {"qr_log_level": "loud"},
        {"qr_edt_base_temp": "warm"}, {"qr_zscore_calibration_samples": -5},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_bad_values_name_key_value_and_range(client, bad):
    key, value = next(iter(bad.items()))
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, **bad)
    assert e.value.param == key and key in e.value.message and str(value) in e.value.message
