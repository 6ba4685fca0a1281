"""The gateway beside a sidecar that stands alone: it follows over gRPC what is chosen, on both of vLLM's runners."""

import pytest

from answers import chat
from processes import wait_for
from test_loss import LONG, Once

pytestmark = pytest.mark.usefixtures("client")
QUESTION = "Tell me about boats."
SHORT = 6  # tokens; those of an interpreted runner take long


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_tokens_are_those_of_the_records(gateway, engine, stream):
    answer = chat(gateway, QUESTION, engine.name, SHORT, stream=stream, qr_temperature=1)
    assert answer.status == 200 and len(answer.ids) == SHORT, answer
    answer.check_records()


def test_both_runners_give_the_same_answer(gateway, tiny, new):
    fields = {"seed": 4, "qr_temperature_strategy": "edt", "qr_top_p": 0.9, "presence_penalty": 1.0}
    answers = [chat(gateway, QUESTION, e.name, SHORT, **fields) for e in (tiny, new)]
    assert answers[0].ids == answers[1].ids and answers[0].text == answers[1].text != ""


def test_plain_requests_pass(gateway, engine):
    answer = chat(gateway, QUESTION, engine.name, SHORT, temperature=0, qr_diagnostic_mode=None)
    assert answer.status == 200 and answer.qr is None and len(answer.ids) == SHORT


def test_lost_sidecar_ends_the_answer(gateway, sidecar, tiny):
    """With an error, in the stream; meanwhile others are refused rather than left to vLLM's own sampling."""
    answer = chat(
        gateway, QUESTION, "tiny", LONG, Once(5, sidecar.kill), stream=True, qr_temperature=1, ignore_eos=True
    )
    assert answer.error and not answer.done and 5 <= len(answer.ids) < LONG, answer
    refused = chat(gateway, QUESTION, "tiny", SHORT, qr_temperature=1)
    assert refused.status in (502, 503) and "sidecar" in refused.error["message"], refused
    assert chat(gateway, QUESTION, "tiny", SHORT, temperature=0, qr_diagnostic_mode=None).status == 200
    sidecar.start()
    gateway.wait_models(60)
    chat(gateway, QUESTION, "tiny", SHORT, qr_temperature=1).check_records()


def test_lost_sidecar_is_gone_on_without(gateway, sidecar, tiny):
    """Where the model is told to; each token that vLLM chose is counted as its own."""
    once = Once(5, sidecar.kill)
    answer = chat(gateway, QUESTION, "tiny-native", LONG, once, stream=True, qr_temperature=1, ignore_eos=True)
    sidecar.start()
    assert once.done and answer.done and answer.reason == "length" and len(answer.ids) == LONG, answer
    assert answer.qr["native_tokens"] > 0 and not answer.qr.get("mismatched_tokens")
    wait_for("the sidecar to choose again", lambda: sampled(gateway), 60)


def test_restarted_sidecar_is_gone_on_with(gateway, sidecar, tiny):
    """It knows nothing of the answer any more; the plugin tells it all, and the gateway follows anew."""

    def restart():
        sidecar.kill()
        sidecar.start()

    fields = {"stream": True, "qr_temperature": 1, "ignore_eos": True}
    answer = chat(gateway, QUESTION, "tiny-native", LONG, Once(5, restart), **fields)
    assert answer.done and answer.reason == "length" and len(answer.ids) == LONG, answer
    chosen = {r["step"]: r["token_id"] for r in answer.qr["records"]}
    assert 0 < answer.qr["native_tokens"] <= LONG - len(chosen) and not answer.qr.get("mismatched_tokens")
    assert LONG - 1 in chosen and all(answer.ids[step] == token for step, token in chosen.items())
    gateway.wait_models(60)


def sampled(gateway):
    answer = chat(gateway, QUESTION, "tiny-native", SHORT, qr_temperature=1)
    return answer.status == 200 and not answer.qr.get("native_tokens")
