"""Looking ahead on a vLLM that is only asked, over its own API: nothing chooses in it."""

import pytest

from answers import chat

pytestmark = pytest.mark.usefixtures("client")
QUESTION = "Tell me a story about a lighthouse."
TOKENS = 10  # each takes a few calls


def ahead(gateway, model, tokens=TOKENS, **more):
    """(ids, the account) of an answer that was looked ahead for; the ids are those of its records."""
    answer = chat(gateway, QUESTION, model, tokens, return_token_ids=None, qr_alpha=0.3, **more)
    assert answer.status == 200 and answer.qr["decoder"] == "lookahead", answer
    return [r["token_id"] for r in answer.qr["records"]], answer.qr, answer.text


@pytest.mark.parametrize(
    ("few", "all_of_them"),
    [
        ({"qr_lookahead_choice": "argmax"}, {"qr_lookahead": "full"}),
        ({"seed": 3}, {"qr_lookahead": "full"}),
        ({"seed": 3, "qr_lookahead": "bounded"}, {"qr_lookahead": "full_inverse"}),
    ],
    ids=["argmax", "sampled", "bounded"],
)
def test_asking_about_few_gives_what_asking_about_all_does(gateway, tiny, few, all_of_them):
    ids, some, text = ahead(gateway, "tiny-asked", **few)
    same, every, whole = ahead(gateway, "tiny-asked", **few | all_of_them)
    assert ids == same and text == whole and len(ids) == TOKENS
    assert 0 < some["peeks"] <= every["peeks"]


def test_begins_as_on_the_engine_of_the_gateway(gateway, small):
    """Which has the same weights in 4 bits: the texts part where two candidates are close."""
    ids, account, _ = ahead(gateway, "small-asked", 6, qr_lookahead_choice="argmax", qr_think_ban=False)
    same, _, _ = ahead(gateway, "llama", 6, qr_lookahead_choice="argmax", qr_think_ban=False)
    assert ids == same
    assert account["peeks_per_token"] < 6


def test_plain_requests_are_drawn_from_the_rows(gateway, tiny):
    fields = {"qr_decoder": "plain", "temperature": 0, "return_token_ids": None}
    answer = chat(gateway, QUESTION, "tiny-asked", TOKENS, **fields)
    ours = [r["token_id"] for r in answer.qr["records"]]
    theirs = chat(gateway, QUESTION, "tiny", TOKENS, temperature=0, qr_diagnostic_mode=None)
    assert ours == theirs.ids and answer.text == theirs.text


def test_what_takes_a_whole_row_is_refused(gateway, tiny):
    refused = chat(gateway, QUESTION, "tiny-asked", 4, return_token_ids=None, qr_temperature_strategy="edt")
    assert refused.status == 400 and refused.error["param"] == "qr_temperature_strategy"
