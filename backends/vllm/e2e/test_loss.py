"""Who chooses the tokens goes away in the middle of an answer, and comes back. vLLM lives through all of it."""

import httpx
import pytest

from answers import ask, chat
from engine import opt_in
from processes import wait_for

END = 2  # the model's token at the end of a text
LONG = 300
PROMPT = [19556, 665, 28, 260]


class Once:
    """Does something when so many tokens of an answer have come."""

    def __init__(self, tokens, action):
        self.tokens, self.action, self.done = tokens, action, False

    def __call__(self, answer):
        if not self.done and len(answer.ids) >= self.tokens:
            self.done = True
            self.action()


@pytest.fixture
def revived(sidecar):
    """The sidecar, which is there again after the test."""
    yield sidecar
    if not sidecar.process.alive():
        sidecar.start()


def answers(engine):
    """Whether the engine's tokens are chosen for it, by an answer that it would not give by itself."""
    return engine.complete(PROMPT, {"qr_logit_bias": {"260": 100}}, max_tokens=1)["token_ids"] == [260]


def test_lost_sidecar_ends_what_must_be_chosen(revived, tiny):
    body = {
        "model": tiny.name,
        "prompt": PROMPT,
        "max_tokens": LONG,
        "return_token_ids": True,
        "stream": True,
        "ignore_eos": False,
    }
    once = Once(5, revived.kill)
    answer = ask(tiny, "/v1/completions", once, **body, **opt_in({"qr_logit_bias": {str(END): -100}}))
    assert once.done and answer.reason == "stop" and answer.ids[-1] == END and 5 <= len(answer.ids) < LONG
    tiny.check()
    assert tiny.complete(PROMPT, temperature=0)["finish_reason"] == "length", "a plain request needs no sidecar"
    revived.start()
    wait_for("the sidecar to choose again", lambda: answers(tiny), 10)


def test_lost_and_restarted_sidecar_is_gone_on_with(revived, tiny):
    """With qr_fail native vLLM goes on by itself until the sidecar is back. Who chooses is told by the bias."""
    cfg = {"qr_logit_bias": {"260": 100}}

    def restart():
        revived.kill()
        revived.start()

    once = Once(5, restart)
    body = {
        "model": tiny.name,
        "prompt": PROMPT,
        "max_tokens": LONG,
        "return_token_ids": True,
        "stream": True,
        "ignore_eos": True,
    }
    answer = ask(tiny, "/v1/completions", once, **body, **opt_in(cfg, fail="native"))
    assert once.done and answer.reason == "length" and len(answer.ids) == LONG
    assert set(answer.ids[:5]) == {260} and answer.ids[-1] == 260 and set(answer.ids) != {260}


def test_lost_gateway_costs_no_engine(gateway, client, small):
    """The gateway and its sidecar are gone at once; another one goes on where vLLM is."""
    with pytest.raises(httpx.TransportError):
        chat(
            gateway,
            "Tell me a story.",
            "small",
            LONG,
            Once(5, gateway.kill),
            stream=True,
            ignore_eos=True,
            qr_temperature=1,
        )
    small.wait_idle()
    small.check()
    gateway.start()
    gateway.wait_models(60)
    answer = chat(gateway, "Tell me a story.", "small")
    answer.check_records()
