"""What is added to the body of a chat, and to which."""

import copy
import itertools
import types

import pytest
from pydantic import BaseModel
from conftest import OTHER, OURS, chat, request, sent


def test_chat_is_marked_and_asks_for_usage(make, module):
    body = chat()
    got = make().inlet(body, __model__=OURS)
    assert got is body
    assert got == {**chat(), "qr_client": module.CLIENT, "stream_options": {"include_usage": True}}


def test_the_mark_of_another_stays(make):
    for mine in {"qr_client": "app/2"}, {"extra_body": {"qr_client": "app/2"}}:
        got = make().inlet(chat(**mine), __model__=OURS)
        assert got == {**chat(**mine), "stream_options": {"include_usage": True}}


def test_stream_options(make):
    for body, want in (
        (chat(stream=False), None),
        (chat(stream_options=None), {"include_usage": True}),
        (chat(stream_options={"chunk_size": 3}), {"include_usage": True, "chunk_size": 3}),
        (chat(stream_options={"include_usage": False}), {"include_usage": False}),
        (chat(stream_options="junk"), "junk"),
    ):
        assert make().inlet(body, __model__=OURS).get("stream_options") == want


PASSED_ON = {"id": "far", "openai": {"id": "far", "qr": {"state": "ready", "raw": True, "parameters": False}}}


@pytest.mark.parametrize("model", [None, {}, OTHER, PASSED_ON, {"id": "x", "openai": None}, {"id": "x", "openai": "qr"}, {"info": None}, {"info": {"base_model_id": "gone"}}, [], "smollm2", 7])
def test_other_models_are_untouched(make, model):
    body = chat(model="gpt-4o")
    before = copy.deepcopy(body)
    assert make(qr_alpha=0.4).inlet(body, __model__=model, __request__=request()) is body and body == before


def test_two_gateways_at_once(make):
    """Both are recognised, behind whatever prefix their connections have; each gets the chats with its own models."""
    for name in "lab.smollm2", "attic.smollm2":
        entry = {**OURS, "id": name, "openai": {**OURS["openai"], "id": name}}
        assert make(qr_alpha=0.4).inlet(chat(model=name), __model__=entry)["qr_alpha"] == 0.4


def test_off(make):
    for off in (False, "false", "off", 0):
        assert make(enabled=off, qr_alpha=0.4).inlet(chat(), __model__=OURS) == chat()


def test_workspace_models(make):
    mine = {"id": "poet", "info": {"base_model_id": "smollm2"}}
    twice = {"id": "bard", "info": {"base_model_id": "poet"}}
    ring = {"id": "ring", "info": {"base_model_id": "ring"}}
    theirs = {"id": "clerk", "info": {"base_model_id": "gpt-4o"}}
    known = request(smollm2=OURS, poet=mine, ring=ring, **{"gpt-4o": OTHER})
    for model, ours in (mine, True), (twice, True), (ring, False), (theirs, False):
        body = make(qr_alpha=0.4).inlet(chat(model=model["id"]), __model__=model, __request__=known)
        assert ("qr_alpha" in body) == ours, model["id"]
    only = types.SimpleNamespace(app=types.SimpleNamespace(state=types.SimpleNamespace(OPENAI_MODELS={"smollm2": OURS})))
    assert "qr_alpha" in make(qr_alpha=0.4).inlet(chat(model="poet"), __model__=mine, __request__=only)


@pytest.mark.parametrize(
    ("patterns", "model", "ours"),
    [
        ("smollm2", "smollm2", True),
        (" other , smol* ", "smollm2", True),
        ("smollm2", "lab.smollm2", True),
        ("lab.*", "lab.smollm2", True),
        ("smollm", "smollm2", False),
        ("", "smollm2", False),
        (",", "smollm2", False),
        ("SMOLLM2", "smollm2", False),
        (None, "smollm2", False),
        (["smollm2"], "smollm2", False),
        ("[", "smollm2", False),
    ],
)
def test_patterns(make, patterns, model, ours):
    for entry in (None, {"id": model, "openai": {"id": model}}):
        assert ("qr_client" in make(models=patterns).inlet(chat(model=model), __model__=entry)) == ours


def test_pattern_of_a_base_model(make):
    poet = {"id": "poet", "info": {"base_model_id": "lab.smollm2"}}
    assert "qr_client" in make(models="smollm2").inlet(chat(model="poet"), __model__=poet, __request__=request())


def test_tasks_get_nothing_but_their_name(make, user):
    f = make(qr_alpha=0.4)
    for more in {"__metadata__": {"task": "title_generation"}}, {"__task__": "title_generation"}:
        got = f.inlet(chat(), __model__=OURS, __user__=user(qr_top_k=4), **more)
        assert got == {**chat(), "qr_task": "title_generation"}
    assert f.inlet(chat(qr_task="none"), __model__=OURS, __metadata__={"task": "x"}) == chat(qr_task="none")
    assert len(f.inlet(chat(), __model__=OURS, __metadata__={"task": "x" * 99})["qr_task"]) == 64
    for metadata in None, {}, {"task": None}, {"task": ""}:
        assert f.inlet(chat(), __model__=OURS, __metadata__=metadata)["qr_alpha"] == 0.4


def test_twice_is_once(make, user):
    f, u = make(qr_alpha=0.4, qr_decoder="lookahead"), user(qr_top_k=4)
    once = f.inlet(chat(temperature=0.5), __user__=u, __model__=OURS)
    again = f.inlet(copy.deepcopy(once), __user__=u, __model__=OURS)
    assert again == once
    task = {"task": "tags_generation"}
    once = f.inlet(chat(), __model__=OURS, __metadata__=task)
    assert f.inlet(copy.deepcopy(once), __model__=OURS, __metadata__=task) == once


class Another:
    """A filter of somebody else's."""

    def __init__(self, **adds):
        self.adds = adds

    def inlet(self, body):
        body.update(self.adds)
        body["messages"] = [{"role": "system", "content": "be brief"}, *body["messages"]]
        return body


def test_another_filter_before_and_after(make):
    ours = make(qr_alpha=0.4, qr_top_k=40)
    before = ours.inlet(Another(qr_alpha=-0.5, temperature=0.1).inlet(chat()), __model__=OURS)
    assert sent(before) == {"qr_alpha": -0.5, "qr_top_k": 40} and before["temperature"] == 0.1
    after = Another(qr_alpha=-0.5).inlet(ours.inlet(chat(), __model__=OURS))
    assert sent(after) == {"qr_alpha": -0.5, "qr_top_k": 40}
    assert len(before["messages"]) == len(after["messages"]) == 2


def test_filters_of_two_ids_agree(make):
    """The same filter imported a second time under another id adds nothing to the first."""
    first, second = make(qr_alpha=0.4), make(qr_alpha=0.9, qr_top_k=4)
    assert sent(second.inlet(first.inlet(chat(), __model__=OURS), __model__=OURS)) == {"qr_alpha": 0.4, "qr_top_k": 4}


def test_precedence(make, user):
    """For every mix of who sets top-k: the body, by any name, over the user over the administrator."""
    for body, own, admin in itertools.product(({}, {"qr_top_k": 1}, {"top_k": 1}, {"extra_body": {"qr_top_k": 1}}, {"qr_top_k": None}), (None, "2"), (None, "3")):
        got = make(qr_top_k=admin).inlet(chat(**body), __user__=user(qr_top_k=own), __model__=OURS)
        if body and body.get("qr_top_k", 1):
            assert got == {**got, **body} and got.get("qr_top_k") == body.get("qr_top_k")
        else:
            assert got.get("qr_top_k") == (2 if own else 3 if admin else None)


def test_the_chats_own_standard_fields_win(make, user):
    f, u = make(qr_temperature="0.2", qr_seed="1", qr_min_p="0.1"), user(qr_top_p="0.5", qr_temperature="0.3")
    got = f.inlet(chat(temperature=0.9, seed=5, top_p=0.8), __user__=u, __model__=OURS)
    assert sent(got) == {"qr_min_p": 0.1} and (got["temperature"], got["seed"], got["top_p"]) == (0.9, 5, 0.8)
    assert sent(f.inlet(chat(extra_body={"temperature": 0.9}), __model__=OURS))["qr_temperature"] == 0.2, "a standard field counts at the top only"
    assert "qr_temperature" not in f.inlet(chat(qr_fixed_temperature=1), __model__=OURS), "two names of one parameter are refused"


def test_server_default_of_a_user_is_just_that(make, user):
    f = make(qr_decoder="lookahead", qr_top_k="40")
    assert sent(f.inlet(chat(), __user__=user(qr_decoder="server default"), __model__=OURS)) == {"qr_top_k": 40}
    assert sent(f.inlet(chat(), __user__=user(qr_top_k="", qr_decoder=None), __model__=OURS)) == {"qr_decoder": "lookahead", "qr_top_k": 40}


def test_users_may_be_kept_from_it(make, user):
    for no in (False, "no"):
        f = make(users_may_override=no, qr_top_k=40)
        assert sent(f.inlet(chat(), __user__=user(qr_top_k=4, qr_alpha=1), __model__=OURS)) == {"qr_top_k": 40}


@pytest.mark.parametrize(
    ("body", "own", "admin", "want"),
    [
        ({}, {"qr_alpha": 0.5}, {"qr_wave_period": 16, "qr_wave_amplitude": 1}, {"qr_alpha": 0.5}),
        ({"qr_alpha": 0.5}, {"qr_wave_offset": 0.1}, {"qr_preset": "future_wave", "qr_wave_amplitude": 1}, {"qr_alpha": 0.5, "qr_preset": "future_wave"}),
        ({}, {"qr_wave_period": 16}, {"qr_alpha": 0.5, "qr_decoder": "plain"}, {"qr_wave_period": 16}),
        ({}, {"qr_wave_period": 0}, {"qr_alpha": 0.5, "qr_decoder": "plain"}, {"qr_wave_period": 0, "qr_alpha": 0.5, "qr_decoder": "plain"}),
        ({"qr_alpha": 0}, {"qr_decoder": "plain"}, {"qr_wave_period": 16}, {"qr_alpha": 0}),
        ({}, {"qr_decoder": "plain"}, {"qr_alpha": 0.5}, {"qr_decoder": "plain", "qr_alpha": 0.5}),
        ({}, {"qr_preset": "adaptive"}, {"qr_alpha": 0.5, "qr_top_k": 4, "qr_entropy_source": "lab", "qr_log_level": "full"}, {"qr_preset": "adaptive", "qr_entropy_source": "lab", "qr_log_level": "full"}),
        ({}, {"qr_preset": "adaptive", "qr_top_k": 9}, {"qr_preset": "plain"}, {"qr_preset": "adaptive", "qr_top_k": 9}),
        ({}, {"qr_preset": "server default"}, {"qr_preset": "plain", "qr_top_k": 4}, {"qr_top_k": 4}),
        ({"qr_preset": "greedy"}, {"qr_top_k": 4}, {"qr_alpha": 1}, {"qr_preset": "greedy"}),
        ({}, {}, {"qr_preset": "adaptive", "qr_top_k": 4}, {"qr_preset": "adaptive", "qr_top_k": 4}),
    ],
)
def test_what_belongs_together(make, user, body, own, admin, want):
    assert sent(make(**admin).inlet(chat(**body), __user__=user(**own), __model__=OURS)) == want


def test_forms_of_the_user(make, module):
    f = make(qr_top_k=40)
    as_object = types.SimpleNamespace(qr_top_k="4", something=1)
    for valves in module.Filter.UserValves(qr_top_k="4"), {"qr_top_k": "4", "other": 1}, as_object:
        assert f.inlet(chat(), __user__={"valves": valves}, __model__=OURS)["qr_top_k"] == 4
    for user in None, {}, {"valves": None}, {"valves": {}}, "somebody", 7:
        assert f.inlet(chat(), __user__=user, __model__=OURS)["qr_top_k"] == 40


def test_never_raises_and_keeps_nothing(make, user):
    f = make(qr_alpha=0.4)
    before = dict(vars(f))

    class Hostile(dict):
        def get(self, *_):
            raise RuntimeError("no")

    for body in (None, [], "text", 7, {}, Hostile(), {"model": ["x"]}):
        assert f.inlet(body, __model__=OURS) is body
    for junk in (7, "x", [1], Hostile(), object()):
        body = chat()
        assert f.inlet(body, __user__=junk, __metadata__=junk, __model__=junk, __request__=junk) is body
        got = f.inlet(chat(), __user__={"valves": junk}, __metadata__=7, __model__=OURS, __request__=junk)
        assert sent(got) == {"qr_alpha": 0.4}
    assert vars(f) == before


def test_a_failure_adds_nothing(make):
    class Broken(BaseModel):
        @property
        def model_fields_set(self):
            raise RuntimeError("no")

    f = make(qr_alpha=0.4)
    assert f.inlet(chat(), __model__=OURS, __user__={"valves": Broken()}) == chat(), "half of what was to be added would be worse"
