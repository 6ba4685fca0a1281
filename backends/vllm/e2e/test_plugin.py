"""Plugin and sidecar alone, without a gateway: vLLM is asked as a gateway asks it."""

import concurrent.futures
import math
import uuid
from collections import Counter

import pytest

from chisquare import deviation
from engine import opt_in
from flood import flood

pytestmark = pytest.mark.usefixtures("sidecar")

PROMPT = [19556, 665, 28, 260]
DRAWS = 20_000
SHORT = 6  # tokens; those of an interpreted runner take long


def test_greedy_is_the_models_own(engine):
    plain = engine.complete(PROMPT, temperature=0, max_tokens=SHORT)["token_ids"]
    assert engine.complete(PROMPT, {"qr_temperature": 0}, max_tokens=SHORT)["token_ids"] == plain


def test_sampled_is_not_greedy(engine):
    """vLLM is told to be greedy, so that a token that isn't is the sidecar's."""
    plain = engine.complete(PROMPT, temperature=0, max_tokens=SHORT)["token_ids"]
    answers = [engine.complete(PROMPT, {}, max_tokens=SHORT)["token_ids"] for _ in range(2)]
    assert plain not in answers and answers[0] != answers[1]


@pytest.mark.parametrize(
    "cfg",
    [
        {},
        {"qr_temperature": 0.8, "qr_top_k": 40, "qr_top_p": 0.95, "qr_min_p": 0.02},
        {"qr_presence_penalty": 1.5, "qr_frequency_penalty": 0.5, "qr_repetition_penalty": 1.3},
        {"qr_logit_bias": {"260": 8, "28": -100}},
        {"qr_temperature_strategy": "edt"},
    ],
    ids=["plain", "cut", "penalties", "bias", "strategy"],
)
def test_both_runners_give_the_same_tokens(tiny, new, cfg):
    """Compact rows on V1 and whole ones on V2: a seed makes one text of them."""
    cfg = {"qr_seed": 11, **cfg}
    answers = [e.complete(PROMPT, cfg, max_tokens=SHORT)["token_ids"] for e in (tiny, new, tiny)]
    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) > 3


def test_mixed_with_plain_requests(engine):
    """Four that take part and four that don't, at once: each as if it were alone."""
    prompts = [PROMPT[: 1 + i] for i in range(4)]
    own = [dict(prompt=p, cfg={"qr_seed": i}, max_tokens=SHORT) for i, p in enumerate(prompts)]
    plain = [dict(prompt=p, temperature=0, max_tokens=SHORT) for p in prompts]
    alone = [engine.complete(**r)["token_ids"] for r in own + plain]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda r: engine.complete(**r)["token_ids"], own + plain))
    assert together == alone


@pytest.mark.parametrize(
    "xargs, named",
    [
        ({"qr_rid": "a", "qr_v": 1, "qr_topk": 3}, "qr_topk"),
        ({"qr_rid": "a", "qr_v": 2}, "qr_v"),
        ({"qr_rid": "a" * 65, "qr_v": 1}, "qr_rid"),
        ({"qr_v": 1}, "qr_rid"),
        ({"qr_rid": "a", "qr_v": 1, "qr_cfg": "{"}, "qr_cfg"),
        ({"qr_rid": "a", "qr_v": 1, "qr_fail": "never"}, "qr_fail"),
    ],
)
def test_bad_arguments_are_refused_by_name(engine, xargs, named):
    answer = engine.http.post("/v1/completions", json={"model": engine.name, "prompt": PROMPT, "vllm_xargs": xargs})
    assert answer.status_code == 400 and named in answer.json()["error"]["message"], answer.text


def test_parameters_that_the_sampler_refuses_end_the_answer(engine):
    """vLLM can't check them. The answer is none at all, rather than one that somebody else chose."""
    got = engine.complete(PROMPT, {"qr_temperature": -1})
    assert got["finish_reason"] == "stop" and len(got["token_ids"]) == 1


def test_first_tokens_are_drawn_from_the_softmax(tiny):
    """Each is the first of a request of its own. vLLM itself would take the best one every time."""
    top = {t: math.exp(v) for t, v in tiny.top(PROMPT[:1]).items()}
    body = {"model": tiny.name, "prompt": PROMPT[:1], "max_tokens": 1, "return_token_ids": True}
    bodies = ({**body, **opt_in({}, rid=f"{uuid.uuid4().hex}-{i}")} for i in range(DRAWS))
    counts = Counter(choice["token_ids"][0] for choice in flood(tiny.port, bodies, 64))
    assert sum(counts.values()) == DRAWS
    off, cells = deviation(counts, top)
    assert cells > 50, "too few tokens are expected often"
    assert abs(off) < 4, f"the statistic is {off:.1f} standard deviations off, over {cells} cells"
