"""Clients with their default settings on a gateway that has room for few. Prints what became of their requests."""

import collections
import concurrent.futures
import json
import os

import openai

client = openai.OpenAI(base_url=os.environ["QR_URL"] + "/v1", api_key="none")


def ask(number: int, key: str = "") -> str:
    try:
        answer = client.chat.completions.create(
            model="fake", max_tokens=8, stream=number % 2 == 0, seed=number,
            messages=[{"role": "user", "content": f"client {number}"}],
            extra_headers={"Idempotency-Key": key} if key else {},
        )
        if number % 2 == 0:
            for _ in answer:
                pass
        return "answered"
    except openai.RateLimitError as e:
        assert e.code == "queue_full" and int(e.response.headers["x-ratelimit-remaining-requests"]) == 0
        return "limited"
    except openai.ConflictError as e:
        assert e.code in ("idempotency_in_progress", "idempotency_ended"), e.code
        return "repeated"
    except openai.APIError as e:
        assert e.code == "broken_logits", e
        return "failed"


with concurrent.futures.ThreadPoolExecutor(24) as pool:
    jobs = [pool.submit(ask, i) for i in range(16)]
    jobs += [pool.submit(ask, 100 + i, f"pair-{i // 2}") for i in range(8)]
print(json.dumps(collections.Counter(j.result() for j in jobs)))
