"""Answers of the gateway, whole and as streams, in one form."""

import dataclasses
import json


@dataclasses.dataclass
class Answer:
    """`error` is that of the stream, or of the whole reply; the rest is what came before it."""

    status: int = 200
    text: str = ""
    ids: list = dataclasses.field(default_factory=list)
    qr: dict = None
    reason: str = None
    error: dict = None
    done: bool = False  # of a stream: it ended with [DONE]

    def add(self, body):
        self.qr, self.error = body.get("qr") or self.qr, body.get("error") or self.error
        for choice in body.get("choices", ()):
            self.text += (choice.get("delta") or choice.get("message") or {}).get("content") or choice.get("text") or ""
            self.ids += choice.get("token_ids") or []
            self.reason = choice.get("finish_reason") or self.reason

    def check_records(self):
        """Each token of the answer is the one that was chosen, by the records of the sampler, one for one."""
        chosen = [(r["step"], r["token_id"]) for r in self.qr["records"]]
        assert chosen == list(enumerate(self.ids))
        assert not self.qr.get("mismatched_tokens") and not self.qr.get("native_tokens")


def ask(server, path, on_token=None, **body):
    """Posts to a gateway or an engine. on_token(answer) is called as tokens come; at True the client leaves."""
    if not body.get("stream"):
        got = server.http.post(path, json=body)
        answer = Answer(status=got.status_code)
        answer.add(got.json())
        return answer
    with server.http.stream("POST", path, json=body) as got:
        answer = Answer(status=got.status_code)
        if got.status_code != 200:
            answer.add(json.loads(got.read()))
            return answer
        for line in got.iter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                answer.done = True
                continue
            before = len(answer.ids)
            answer.add(json.loads(line[6:]))
            if on_token and len(answer.ids) > before and on_token(answer):
                break
    return answer


def chat(server, question, model, max_tokens=24, on_token=None, **more):
    """A chat whose tokens and records come along."""
    more = {
        "qr_diagnostic_mode": True,
        "return_token_ids": True,
        "messages": [{"role": "user", "content": question}],
        **more,
    }
    return ask(server, "/v1/chat/completions", on_token, model=model, max_tokens=max_tokens, **more)
