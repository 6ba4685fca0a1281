"""Every parameter is a valve, every valve is sent, and nothing that was ever stored breaks a chat."""

import json

import pytest
from conftest import FIELDS, HERE, OURS, SWITCHES, TABLE, chat, example, sent

UNSHARED = {"qr_log_level", "qr_diagnostic_mode"}
JUNK = [None, "", "  ", "banana", "nan", "inf", "-1e999", "9" * 400, "9" * 5000, float("nan"), float("inf"), 0, -1, 1.5, True, False, [], [1], {}, {"a": 1}, "server default", "ü\x00", "0x10", 10**30]


def test_no_key_is_forgotten(module):
    assert set(module.PARAMETERS) == set(FIELDS)
    assert list(module.Filter.Valves.model_fields)[: len(SWITCHES)] == list(SWITCHES)
    assert set(module.Filter.Valves.model_fields) == {*SWITCHES, *FIELDS}
    assert set(module.Filter.UserValves.model_fields) == set(FIELDS) - UNSHARED


def test_names_are_those_of_the_table(module):
    for key, (_, *others) in module.PARAMETERS.items():
        field = FIELDS[key]
        assert others == [*field.get("aliases", []), *([field["standard"]] if field.get("standard") else [])]


def test_the_processes_own_are_no_valves(module):
    own = {f["key"] for f in TABLE if not f["per_request"]}
    assert "qr_grpc_api_key" in own and not own & set(module.Filter.Valves.model_fields)


@pytest.mark.parametrize("key", FIELDS)
def test_every_valve_is_sent(make, key):
    value, want = example(FIELDS[key])
    assert sent(make(**{key: value}).inlet(chat(), __model__=OURS)) == {key: want}


@pytest.mark.parametrize("key", sorted(set(FIELDS) - UNSHARED))
def test_every_users_valve_is_sent(make, user, key):
    value, want = example(FIELDS[key])
    assert sent(make().inlet(chat(), __user__=user(**{key: value}), __model__=OURS)) == {key: want}


def test_users_cannot_set_what_is_not_theirs(make, user):
    body = make().inlet(chat(), __user__=user(qr_log_level="full", qr_diagnostic_mode="on"), __model__=OURS)
    assert sent(body) == {}


@pytest.mark.parametrize("key", FIELDS)
def test_form(module, key):
    """What makes an input of a field in Open WebUI's page: enum is a dropdown, a string without one an area, no type a box of one line."""
    field, form = FIELDS[key], module.Filter.Valves.model_json_schema()["properties"][key]
    words = field.get("enum") or (["on", "off"] if field["type"] == "boolean" else None)
    assert form.get("enum") == (["server default", *words] if words else None)
    assert form["default"] == ("server default" if words else None)
    assert form.get("type") == ("string" if field["type"] == "object" else None)
    assert "anyOf" not in form and "$ref" not in form
    assert f"`{key}`" in form["description"] and form["title"]
    if field["type"] in ("number", "integer") and key != "qr_seed":
        assert f"to {field['max']:.15g}" in form["description"]
    if key in ("qr_temperature_strategy", "qr_amplifier"):
        assert all("- " + word.replace("_", "\\_") + ": " in form["description"] for word in field["enum"])


def test_switches_are_switches(module):
    forms = module.Filter.Valves.model_json_schema()["properties"]
    for key in ("enabled", "status", "warnings", "users_may_override"):
        assert forms[key]["type"] == "boolean" and forms[key]["default"] is True


def test_nothing_is_sent_unasked(make, user):
    stored = {key: "server default" if "enum" in f or f["type"] == "boolean" else None for key, f in FIELDS.items()}
    for f in (make(), make(**stored), make(**dict.fromkeys(FIELDS, "")), make(**dict.fromkeys(FIELDS, "server default"))):
        assert sent(f.inlet(chat(), __user__=user(), __model__=OURS)) == {}


@pytest.mark.parametrize(
    ("typed", "value"),
    [("0.4", 0.4), (" 40 ", 40), ("40.0", 40), ("1e3", 1000), ("1_000", 1000), ("-0.2", -0.2), ("9223372036854775807", 2**63 - 1), ("0,4", "0,4"), ("nan", "nan"), ("1e999", "1e999")],
)
def test_numbers(make, typed, value):
    f = make(qr_seed=typed)
    assert f.valves.model_dump(exclude_unset=True) == {"qr_seed": value}
    got = f.inlet(chat(), __model__=OURS)["qr_seed"]
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize(("stored", "value"), [("on", True), (" off ", False), (True, True), (False, False), ("yes", "yes"), (1, 1), ("server default", None)])
def test_flags(make, stored, value):
    assert sent(make(qr_bypass=stored).inlet(chat(), __model__=OURS)) == ({} if value is None else {"qr_bypass": value})


def test_objects(make):
    for value, want in ({"1": 2}, {"1": 2}), ('{"1": 2}', {"1": 2}), ("{1: 2}", "{1: 2}"), ("[1]", "[1]"), ('{"1": -Infinity}', '{"1": -Infinity}'), ('{"1": 1e999}', '{"1": 1e999}'), ("[" * 100000, "[" * 100000):
        f = make(qr_logit_bias=value)
        assert f.inlet(chat(), __model__=OURS)["qr_logit_bias"] == want
        assert isinstance(f.valves.qr_logit_bias, str), "a text box can't show an object"


@pytest.mark.parametrize("junk", JUNK, ids=lambda j: repr(j)[:20])
def test_junk_is_kept_and_never_raises(module, make, user, junk):
    stored = dict.fromkeys([*FIELDS, "models"], junk)
    for kind in (module.Filter.Valves, module.Filter.UserValves):
        kept = kind(**stored).model_dump(exclude_unset=True)
        again = kind(**json.loads(json.dumps(kept))).model_dump(exclude_unset=True)
        assert json.dumps(kept) == json.dumps(again), "saving once more changes what is stored"
        for key, value in kept.items():
            if isinstance(junk, str) and "enum" in FIELDS.get(key, {}) and key in kind.model_fields:
                assert value == (junk if junk.strip() else None)
    f = make(**{**stored, **dict.fromkeys(SWITCHES, junk), "enabled": True})
    body = f.inlet(chat(), __user__=user(**dict.fromkeys(set(FIELDS) - UNSHARED, junk)), __model__=OURS)
    json.dumps(body, allow_nan=False)
    assert body["qr_client"]


@pytest.mark.parametrize("junk", JUNK, ids=lambda j: repr(j)[:20])
def test_priority_can_always_be_sorted(make, junk):
    assert sorted([(make(priority=junk).valves.priority, "a"), (0, "b"), (2.5, "c")])


def test_a_switch_without_a_value_is_on(make):
    body = make(**dict.fromkeys(SWITCHES, None), qr_alpha=0.4).inlet(chat(), __model__=OURS)
    assert sent(body) == {"qr_alpha": 0.4} and body["qr_client"]


def test_unknown_words_are_sent_and_unknown_keys_kept(make):
    f = make(qr_decoder="psychic", qr_alpha="banana", qr_of_tomorrow=5, old={"a": 1})
    assert sent(f.inlet(chat(), __model__=OURS)) == {"qr_decoder": "psychic", "qr_alpha": "banana"}
    assert f.valves.model_dump(exclude_unset=True) == {"qr_decoder": "psychic", "qr_alpha": "banana", "qr_of_tomorrow": 5, "old": {"a": 1}}


@pytest.mark.parametrize("path", sorted(HERE.glob("valves-*.json")), ids=lambda p: p.stem)
def test_valves_of_a_released_version(make, user, path):
    """A file is what one version stored, and what it sent for it. Neither changes once it is released."""
    saved = json.loads(path.read_text())
    f = make(**saved["admin"])
    assert f.valves.model_dump(exclude_unset=True) == saved["admin"]
    assert sent(f.inlet(chat(), __model__=OURS)) == saved["sent"]
    assert sent(make().inlet(chat(), __user__=user(**saved["user"]), __model__=OURS)) == {k: v for k, v in saved["sent"].items() if k in saved["user"]}


def test_a_released_version_is_held(module):
    assert (HERE / f"valves-{module.VERSION}.json").exists(), "store the valves of this version before it is released"
