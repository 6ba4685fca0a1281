"""Clients with their default settings on a gateway that has room for few. Prints what became of their requests."""

import collections
import concurrent.futures
import json
import os

import openai

client = openai.OpenAI(base_url=os.environ["QR_URL"] + "/v1", api_key="none")


def ask(number: int, key: str = "") -> tuple[str, str]:
    """What became of a request, and what its client has."""
    told = ""
    try:
        answer = client.chat.completions.create(
            model="fake", max_tokens=8, stream=number % 2 == 0, seed=number,
            messages=[{"role": "user", "content": f"client {number}"}],
            extra_headers={"Idempotency-Key": key} if key else {},
        )
        if number % 2 == 0:
            for chunk in answer:
                told = chunk.id + told.removeprefix(chunk.id) + "".join(c.delta.content or "" for c in chunk.choices)
        else:
            told = answer.id + answer.choices[0].message.content
        return "answered", told
    except openai.RateLimitError as e:
        assert e.code == "queue_full" and int(e.response.headers["x-ratelimit-remaining-requests"]) == 0
        return "limited", ""
    except openai.APIError as e:
        assert e.code == "broken_logits", e
        return "failed", told


def pair(number: int) -> list[str]:
    """What became of a request that is sent twice at once: who repeats it has what the other has."""
    with concurrent.futures.ThreadPoolExecutor(2) as two:
        both = list(two.map(lambda _: ask(number, f"pair {number}"), range(2)))
    ran = [b for b in both if b[0] != "limited"]
    assert len(ran) < 2 or ran[0] == ran[1], ran
    return ["repeated" if ran == both and i == 1 else b[0] for i, b in enumerate(both)]


with concurrent.futures.ThreadPoolExecutor(20) as pool:
    jobs = [pool.submit(lambda i=i: [ask(i)[0]]) for i in range(16)]
    jobs += [pool.submit(pair, 100 + i) for i in range(4)]
print(json.dumps(collections.Counter(outcome for j in jobs for outcome in j.result())))
