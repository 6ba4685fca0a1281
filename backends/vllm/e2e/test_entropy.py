"""The server of an entropy source is killed in the middle of an answer, under each policy."""

import pytest

from answers import chat
from processes import wait_for
from test_loss import Once

pytestmark = pytest.mark.usefixtures("client")
QUESTION = "Tell me a long story about a lighthouse."


@pytest.fixture
def source(entropy, gateway):
    """Kills the server; afterwards it is there again, and the sources serve."""
    yield entropy.kill
    if not entropy.process.alive():
        entropy.start()
    names = ("lab-strict", "lab-fallback", "lab-observe")
    wait_for("the sources to serve", lambda: all(serves(gateway, name) for name in names), 30)


def serves(gateway, name):
    answer = chat(gateway, QUESTION, "small", 1, qr_entropy_source=name)
    return answer.status == 200 and not answer.qr.get("fallback_tokens")


def test_source_serves_every_token(gateway, small):
    answer = chat(gateway, QUESTION, "small", qr_entropy_source="lab-strict")
    answer.check_records()
    assert {r["entropy_source_used"] for r in answer.qr["records"]} == {"lab-strict"}
    assert not answer.qr.get("fallback_tokens") and answer.qr["entropy_bytes"] > 0


def test_fallback_marks_each_token(gateway, small, source):
    answer = chat(
        gateway, QUESTION, "small", 60, Once(5, source), stream=True, qr_entropy_source="lab-fallback", ignore_eos=True
    )
    assert answer.done and answer.reason == "length", answer.error
    answer.check_records()
    marked = [r["entropy_is_fallback"] for r in answer.qr["records"]]
    assert not marked[0] and marked[-1] and answer.qr["fallback_tokens"] == sum(marked) > 10
    assert {r["entropy_source_used"] for r in answer.qr["records"] if r["entropy_is_fallback"]} == {"system"}


@pytest.mark.parametrize("name", ["lab-strict", "lab-observe"])
def test_without_bytes_the_answer_ends(gateway, small, source, name):
    answer = chat(
        gateway, QUESTION, "small", 300, Once(5, source), stream=True, qr_entropy_source=name, ignore_eos=True
    )
    assert answer.error and answer.error["code"] == "entropy_unavailable" and not answer.done, answer
    assert 5 <= len(answer.ids) < 300
    again = chat(gateway, QUESTION, "small", qr_entropy_source=name)
    assert again.status == 503 and again.error["code"] == "entropy_unavailable" and name in again.error["message"]
    assert chat(gateway, QUESTION, "small", 4).status == 200, "the other sources serve on"


def test_plain_requests_need_no_source(gateway, small, source):
    source()
    answer = chat(gateway, QUESTION, "small", 4, temperature=0, qr_diagnostic_mode=None)
    assert answer.status == 200 and answer.qr is None and len(answer.ids) == 4
