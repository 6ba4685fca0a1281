"""
title: qr-gateway
author: qr-gateway
version: 1.0.0
license: Apache-2.0
description: Every parameter of qr-gateway as a valve: look-ahead, temperature strategies, entropy sources. Says with each answer how its tokens were chosen.
required_open_webui_version: 0.10.0

What wins, highest first, for each parameter by itself:

1. What the chat's own body has: the key, another name of it, or the standard field it stands for. A temperature of the chat's controls is the
   chat's own wish, so that neither a user's valve nor the administrator's replaces it.
2. The user's valve.
3. The administrator's valve.
4. Nothing is sent, and the server's configuration decides.

Some belong together, as they do in the gateway's own configuration. Who sets alpha or a wave decides both, and the decoder, for all below. Who
names a preset starts anew: of the valves below only those about the entropy source and about logs are sent.

A user who chooses "server default" gets just that, whatever the administrator chose. A user who chooses nothing gets the administrator's.
"""

import json
import logging
import math
import traceback
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

VERSION = "1.0.0"
CLIENT = "open-webui-filter/" + VERSION

# The word of a valve that sends nothing.
DEFAULT = "server default"

# What turns no parameter on.
OFF = (None, DEFAULT)

# Objects of the body in which the gateway reads parameters too.
CONTAINERS = ("extra_body", "extra_args", "vllm_xargs")

# A layer that sets one of the first two has the last word on all three: the gateway takes no wave beside an alpha, and "plain" from below would
# make either useless.
STEERING = ("qr_alpha", "qr_wave_period", "qr_decoder")

# An alpha settles these besides: they are parts of a wave, and the gateway refuses them beside an alpha where a preset or its configuration has a wave.
WAVE_PARTS = ("qr_wave_amplitude", "qr_wave_offset")

# Valves that are sent below a preset too: they are about the process more than about the text.
BESIDE_PRESET = ("qr_entropy_source", "qr_entropy_prefetch", "qr_log_level", "qr_diagnostic_mode")

# Every parameter: its kind, then the other names that a body may have it by.
PARAMETERS = {
    # <generated: parameters>
    # </generated>
}


def tidy(kind, value):
    """Gives a stored value the form that is sent, where it can be seen which one is meant; anything else stays as it is, for the gateway to refuse."""
    if isinstance(value, str):
        text = value.strip()
        if kind == "number" and text:
            return number_of(text, value)
        return value if text else None
    if kind == "object" and isinstance(value, dict):
        return json.dumps(value)  # a text box can't show an object
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # as a number it is no JSON, so that the gateway couldn't say which value is wrong
    return value


def number_of(text, otherwise):
    """The number that text is, a whole one where it can be; NaN and infinity are no JSON."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        x = float(text)
    except ValueError:
        return otherwise
    if not math.isfinite(x):
        return otherwise
    return int(x) if x.is_integer() and abs(x) < 2**53 else x


def wire(kind, value):
    """What the body gets for a valve: None for nothing, DEFAULT for nothing by choice."""
    value = tidy(kind, value)
    if isinstance(value, str):
        word = value.strip()
        if kind == "flag" and word in ("on", "off"):
            return word == "on"
        if kind == "object":
            return object_of(word)
        return word
    return value


def object_of(text):
    """The object that text is, or the text. Python reads and writes infinity, which is no JSON."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def box(title, text, **schema):
    """A field for text of one line. Its type is Any, because the class must take whatever was stored before: where a constructor raises, Open WebUI
    stops every chat."""
    return Field(default=None, title=title, description=text, json_schema_extra=schema or None)


def number(title, text):
    """A field for a number. Open WebUI has no input for one, so that it is a box; see tidy."""
    return box(title, text)


def choice(title, words, text):
    """A dropdown. A stored word that is not among its own stays stored."""
    return Field(default=DEFAULT, title=title, description=text, json_schema_extra={"enum": [DEFAULT, *words]})


def flag(title, text):
    """A dropdown too, since a switch has no place for "server default"."""
    return choice(title, ["on", "off"], text)


def switch(title, default, text):
    """A switch."""
    return Field(default=default, title=title, description=text, json_schema_extra={"type": "boolean"})


def on(value):
    """Whether a switch is on. One that was stored as text counts as what the text says, and one without a value as if nobody had touched it."""
    if isinstance(value, str):
        return value.strip().lower() not in ("", "0", "false", "no", "off")
    return value is None or bool(value)


def area(title, text):
    """A box of several lines."""
    return box(title, text, type="string")


class Stored(BaseModel):
    """What valves have in common: nothing that was ever stored makes them raise, and keys of another version are kept."""

    model_config = ConfigDict(extra="allow")

    @field_validator("*", mode="before")
    @classmethod
    def tidied(cls, value, info):
        if info.field_name == "priority":
            return sortable(value)
        if info.field_name not in PARAMETERS:
            return value
        return tidy(PARAMETERS[info.field_name][0], value)


def sortable(priority):
    """The one value that is replaced if it is no number: Open WebUI sorts all filters by it, and would fail."""
    value = number_of(priority.strip(), 0) if isinstance(priority, str) else priority
    # Comparisons take whole numbers of any size, and NaN fails them.
    return value if isinstance(value, (int, float)) and -math.inf < value < math.inf else 0


class Switches(Stored):
    """What the filter itself does."""

    enabled: Any = switch("Enabled", True, "Off: the filter does nothing, as if it were not installed.")
    status: Any = switch("Status", True, "Shows with each answer how its tokens were chosen, and a link to its record.")
    warnings: Any = switch("Warnings", True, "Shows a warning when an entropy source failed and other numbers took its place.")
    users_may_override: Any = switch("Users may override", True, "Users' own valves win over those of this page.")
    models: Any = area(
        "Models",
        "More models of the gateway, as patterns with commas between them: `smollm2, qr-*`. Needed only where the filter can't see whose a model is: "
        "where the connection lists model ids by hand. Other models get nothing.",
    )
    priority: Any = Field(default=0, title="Priority", description="Filters run in the order of this number, the smallest first.")


class Parameters(Stored):
    """The parameters that administrators and users may set."""

    # <generated: valves>
    # </generated>


class Unshared(Stored):
    """The parameters that only administrators set: they fill the server's log and memory."""

    # <generated: administrator>
    # </generated>


def stored(valves):
    """What was set in valves, which may be a model, a dictionary, any object or nothing."""
    if valves is None or isinstance(valves, dict):
        return valves or {}
    if isinstance(valves, BaseModel):
        return {key: getattr(valves, key) for key in valves.model_fields_set}
    return getattr(valves, "__dict__", {})


def layer(valves, keys):
    """What valves say of the parameters: by key the value, or DEFAULT."""
    values = stored(valves)
    out = {key: wire(PARAMETERS[key][0], values[key]) for key in keys if key in values}
    return {key: value for key, value in out.items() if value is not None}


def given(body):
    """What the body has, by its names. None is the same as leaving a key out, and standard fields count at the top only."""
    out = {key: value for key, value in body.items() if value is not None}
    for part in map(body.get, CONTAINERS):
        if isinstance(part, dict):
            out.update((key, value) for key, value in part.items() if value is not None and str(key).startswith("qr_"))
    return out


def named(present):
    """The parameters among what the body has, by their keys, whatever name it has them by."""
    return {key: present[name] for key, (_, *others) in PARAMETERS.items() for name in (key, *others) if name in present}


def lay(layers):
    """Lays layers over one another, the first on top, and returns what the last ones add to the first."""
    settled, added = set(), {}
    for i, values in enumerate(layers):
        for key, value in values.items():
            if key in settled:
                continue
            if i > 0 and value != DEFAULT:
                added[key] = value
        settled.update(below(values))
    return added


def below(values):
    """The keys that a layer settles for those below it."""
    keys = set(values)
    if values.get("qr_alpha") not in OFF or values.get("qr_wave_period") not in (*OFF, 0, "0"):
        keys.update(STEERING)
    if values.get("qr_alpha") not in OFF:
        keys.update(WAVE_PARTS)
    if values.get("qr_preset") not in (*OFF, ""):
        keys.update(key for key in PARAMETERS if key not in BESIDE_PRESET)
    return keys


def ours(entry):
    """Whether an entry of Open WebUI's model list comes from the gateway, which adds a key of its own. Models that it only passes requests on for take no
    parameters, and say so."""
    parts = (entry.get("openai"), entry) if isinstance(entry, dict) else ()
    own = [part["qr"] for part in parts if isinstance(part, dict) and "qr" in part]
    return bool(own) and not any(isinstance(qr, dict) and qr.get("parameters") is False for qr in own)


def base_of(entry, request):
    """The entry of the model that a workspace model is built on."""
    base = ((entry.get("info") or {}).get("base_model_id")) if isinstance(entry, dict) else None
    state = getattr(getattr(request, "app", None), "state", None)
    for name in ("MODELS", "OPENAI_MODELS"):
        models = getattr(state, name, None)
        if base and models and base in models:
            return models[base]
    return None


def of_gateway(model_id, entry, request, patterns):
    """Whether a model is one of the gateway's, itself or what it is built on. A chain of models has few links, and may be a ring."""
    ids = [model_id]
    for _ in range(4):
        if ours(entry):
            return True
        if not isinstance(entry, dict):
            break
        ids.append(entry.get("id"))
        ids.append((entry.get("info") or {}).get("base_model_id"))
        entry = base_of(entry, request)
    return any(matches(name, patterns) for name in ids if isinstance(name, str))


def matches(name, patterns):
    """Whether a pattern fits a model's id, with or without the prefix that a connection may put before it."""
    wanted = [p.strip() for p in patterns.split(",")] if isinstance(patterns, str) else []
    return any(fnmatchcase(part, p) for p in wanted if p for part in (name, name.partition(".")[2]) if part)


def report_of(body):
    """What the gateway says of the newest answer, and the answer."""
    for message in reversed(body.get("messages") or []):
        if message.get("role") == "assistant":
            usage = message.get("usage") or (message.get("info") or {}).get("usage") or {}
            report = usage.get("qr")
            return (report if isinstance(report, dict) else None), message
    return None, None


def short(value, digits=2):
    """A value as a line of text has it."""
    if isinstance(value, float):
        return f"{value:.{digits}f}"
    return str(value)[:64]


def spread(least, most):
    """Alpha, or the range of it."""
    if least is None or most is None:
        return None
    low, high = short(float(least)), short(float(most))
    return f"alpha {low}" if low == high else f"alpha {low} to {high}"


def how(report):
    """How the tokens were chosen."""
    parts = [{"lookahead": "look-ahead"}.get(report.get("decoder"), short(report.get("decoder") or "sampling"))]
    if report.get("decoder") == "lookahead":
        parts.append(spread(report.get("alpha_min"), report.get("alpha_max")))
        if report.get("peeks_per_token") is not None:
            parts.append(f"{short(float(report['peeks_per_token']), 1)} peeks a token")
    if report.get("strategy") not in (None, "", "fixed"):
        parts.append(short(report["strategy"]))
    if report.get("preset"):
        parts.append(f"preset {short(report['preset'])}")
    return ", ".join(part for part in parts if part)


def line(report):
    """The line that an answer gets."""
    tokens = report.get("tokens")
    parts = [how(report)]
    if report.get("entropy_source"):
        parts.append(f"entropy: {short(report['entropy_source'])}")
    if report.get("fallback_tokens"):
        parts.append(f"{short(report['fallback_tokens'])} by fallback")
    if report.get("flagged_tokens"):
        parts.append(f"{short(report['flagged_tokens'])} flagged")
    if tokens is not None:
        parts.append(f"{short(tokens)} token" + ("" if tokens == 1 else "s"))
    return " · ".join(parts)


def warning(report):
    """What is said when entropy fell back."""
    source = short(report.get("entropy_source") or "the entropy source")
    count, tokens = short(report["fallback_tokens"]), short(report.get("tokens") or "the")
    return f"Entropy source {source} failed: {count} of {tokens} tokens were chosen with numbers of its fallback."


def record_of(report, message):
    """The link to the answer's record, unless the message has it."""
    url = report.get("record")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return None
    known = json.dumps(message.get("sources") or [], default=str)
    return None if url in known else url


def link(url, text):
    """The event that shows a link: a source of the answer, kept with the message. A status line holds plain text, and one with addresses asks a
    third party for their icons; so does a source whose name is an address, which is why this one's is words."""
    return {
        "type": "source",
        "data": {
            "source": {"name": "Record of this answer", "url": url},
            "document": [text],
            "metadata": [{"source": "Record of this answer", "name": "Record of this answer", "url": url}],
        },
    }


def failed(hook, error):
    """Says in Open WebUI's log that a hook failed and where, but not the error's text, which may hold what people wrote."""
    at = traceback.extract_tb(error.__traceback__)[-1].lineno
    logging.getLogger(__name__).error("qr-gateway filter: %s failed with %s at line %s", hook, type(error).__name__, at)


class Filter:
    """Open WebUI calls inlet before a chat's request goes out and outlet once its answer is there. Neither ever raises: that would end the chat.
    Nothing is kept between calls; one instance serves all requests."""

    class Valves(Unshared, Parameters, Switches):
        """The administrator's valves. Fields come in the order of the bases from the last to the first."""

    class UserValves(Parameters):
        """A user's own valves."""

    def __init__(self):
        self.valves = self.Valves()

    def inlet(self, body, __user__=None, __metadata__=None, __model__=None, __request__=None, __task__=None):
        """Adds what the valves say to the body of a chat with a model of the gateway."""
        try:
            if self.serves(body, __model__, __request__):
                body.update(self.additions(body, __user__, __metadata__, __task__))
        except Exception as error:
            failed("inlet", error)
        return body

    def serves(self, body, model, request):
        """Whether the body is for a model of the gateway."""
        values = self.valves
        return on(values.enabled) and of_gateway(body.get("model"), model, request, values.models)

    def additions(self, body, user, metadata, task):
        """The keys that the body gets."""
        task = task or (metadata.get("task") if isinstance(metadata, dict) else None)
        present = given(body)
        if task:
            return {"qr_task": str(task)[:64]} if "qr_task" not in present else {}
        own = (user.get("valves") if isinstance(user, dict) else None) if on(self.valves.users_may_override) else None
        added = lay([named(present), layer(own, self.UserValves.model_fields), layer(self.valves, PARAMETERS)])
        if "qr_client" not in present:
            added["qr_client"] = CLIENT
        options = body.get("stream_options") or {}
        if body.get("stream") and isinstance(options, dict):
            added["stream_options"] = {"include_usage": True, **options}
        return added

    async def outlet(self, body, __event_emitter__=None, __model__=None, __request__=None):
        """Shows how the tokens of the newest answer were chosen."""
        try:
            if __event_emitter__ and self.serves(body, __model__, __request__):
                for event in self.events(body):
                    await __event_emitter__(event)
        except Exception as error:
            failed("outlet", error)
        return body

    def events(self, body):
        """What is shown."""
        report, message = report_of(body)
        out = []
        if report is None:
            return out
        if on(self.valves.status):
            out.append({"type": "status", "data": {"description": line(report), "done": True}})
            url = record_of(report, message)
            if url:
                out.append(link(url, line(report)))
        if on(self.valves.warnings) and report.get("fallback_tokens"):
            out.append({"type": "notification", "data": {"type": "warning", "content": warning(report)}})
        return out
