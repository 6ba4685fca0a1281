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
    "qr_preset": ("text",),
    "qr_decoder": ("choice",),
    "qr_alpha": ("number",),
    "qr_curve": ("choice",),
    "qr_wave_period": ("number",),
    "qr_wave_amplitude": ("number",),
    "qr_wave_offset": ("number",),
    "qr_lookahead": ("choice",),
    "qr_lookahead_choice": ("choice",),
    "qr_lookahead_k": ("number",),
    "qr_lookahead_n": ("number",),
    "qr_lookahead_min_p": ("number",),
    "qr_confidence_threshold": ("number",),
    "qr_think_ban": ("flag",),
    "qr_temperature_strategy": ("choice",),
    "qr_temperature": ("number", "qr_fixed_temperature", "temperature"),
    "qr_entropy_source": ("text", "qr_entropy_source_type"),
    "qr_amplifier": ("choice", "qr_signal_amplifier_type"),
    "qr_seed": ("number", "seed"),
    "qr_top_k": ("number", "top_k"),
    "qr_top_p": ("number", "top_p"),
    "qr_min_p": ("number", "qr_min_p_base", "min_p"),
    "qr_truncate_first": ("flag",),
    "qr_frequency_penalty": ("number", "frequency_penalty"),
    "qr_presence_penalty": ("number", "presence_penalty"),
    "qr_repetition_penalty": ("number", "repetition_penalty"),
    "qr_logit_bias": ("object", "logit_bias"),
    "qr_entropy_prefetch": ("flag",),
    "qr_sample_count": ("number",),
    "qr_population_mean": ("number",),
    "qr_population_std": ("number",),
    "qr_uniform_clamp_epsilon": ("number",),
    "qr_zscore_calibration_samples": ("number",),
    "qr_draw_source_id": ("text",),
    "qr_draw_block_bytes": ("number",),
    "qr_bypass": ("flag",),
    "qr_log_level": ("choice",),
    "qr_diagnostic_mode": ("flag",),
    "qr_edt_base_temp": ("number",),
    "qr_edt_exponent": ("number",),
    "qr_edt_min_temp": ("number",),
    "qr_edt_max_temp": ("number",),
    "qr_hvh_t_base": ("number",),
    "qr_hvh_alpha_h": ("number",),
    "qr_hvh_alpha_vh": ("number",),
    "qr_hvh_gamma_dh": ("number",),
    "qr_hvh_delta_dvh": ("number",),
    "qr_hvh_lambda_ema": ("number",),
    "qr_hvh_min_p_base": ("number",),
    "qr_hvh_kappa_h": ("number",),
    "qr_hvh_nu_dh": ("number",),
    "qr_tt_t_base": ("number",),
    "qr_tt_gamma": ("number",),
    "qr_tt_min_p_base": ("number",),
    "qr_tt_min_p_scale": ("number",),
    "qr_evdt_t_base": ("number",),
    "qr_evdt_alpha": ("number",),
    "qr_evdt_beta": ("number",),
    "qr_evdt_min_p_base": ("number",),
    "qr_evdt_min_p_scale": ("number",),
    "qr_evdt_min_p_vh": ("number",),
    "qr_gdt_t_base": ("number",),
    "qr_gdt_t_peak": ("number",),
    "qr_gdt_mu": ("number",),
    "qr_gdt_sigma": ("number",),
    "qr_gdt_alpha": ("number",),
    "qr_gdt_lambda_vh": ("number",),
    "qr_gdt_min_p_base": ("number",),
    "qr_gdt_min_p_scale": ("number",),
    "qr_dynatemp_t_center": ("number",),
    "qr_dynatemp_t_range": ("number",),
    "qr_dynatemp_exponent": ("number",),
    "qr_dynatemp_min_p": ("number",),
    "qr_belltemp_t_base": ("number",),
    "qr_belltemp_t_peak": ("number",),
    "qr_belltemp_mu": ("number",),
    "qr_belltemp_sigma": ("number",),
    "qr_belltemp_vh_weight": ("number",),
    "qr_belltemp_lambda_vh": ("number",),
    "qr_belltemp_min_p_base": ("number",),
    "qr_belltemp_min_p_scale": ("number",),
    "qr_mix_t_cool": ("number",),
    "qr_mix_t_hot": ("number",),
    "qr_mix_gate_a": ("number",),
    "qr_mix_gate_b": ("number",),
    "qr_mix_gate_c": ("number",),
    "qr_mix_gate_d": ("number",),
    "qr_mix_min_p": ("number",),
    "qr_rba_buffer_n": ("number",),
    "qr_rba_lam": ("number",),
    "qr_rba_threshold": ("number",),
    "qr_rba_t": ("number",),
    "qr_rba_min_p": ("number",),
    "qr_coherence_inner_strategy": ("choice",),
    "qr_coherence_threshold": ("number",),
    "qr_coherence_t_boost_max": ("number",),
    "qr_coherence_ema_alpha": ("number",),
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

    qr_preset: Any = box(
        "Preset",
        "Name of a set of parameters to start from. What the request sets itself wins over it. The gateway brings adaptive, chat_light, creative_sampling, future_focus, future_open, future_wave, greedy, normal_t1, plain, qthought, qthought_purity, qthought_think, qthought_voice, research_strict along; `GET /v1/qr/presets` there lists all it has.\n\n"
        "`qr_preset` · text of at most 64 bytes without control characters · built-in default: unset",
    )
    qr_decoder: Any = choice(
        "Decoder", ["auto", "plain", "lookahead"],
        "How tokens are chosen: from the row at hand (plain), or also by what would follow (lookahead). auto is lookahead where `qr_alpha` or a wave is set.\n\n"
        "`qr_decoder` · built-in default: auto",
    )
    qr_alpha: Any = number(
        "Alpha",
        "Weight of the future: -1 is the model's own probability, 0 weighs both, 1 is only the openness of what follows.\n\n"
        "`qr_alpha` · a number from -1 to 1 · built-in default: unset",
    )
    qr_curve: Any = choice(
        "Curve", ["article", "crossfade", "seed"],
        "How alpha becomes the two exponents of the score p\\^a H\\^b.\n\n"
        "`qr_curve` · built-in default: article",
    )
    qr_wave_period: Any = number(
        "Wave period",
        "Period of a sine that alpha follows.\n\n"
        "`qr_wave_period` · 0 (off) or a number from 2 to 100000 · unit: tokens · built-in default: 0",
    )
    qr_wave_amplitude: Any = number(
        "Wave amplitude",
        "Height of the sine. alpha is kept between -1 and 1.\n\n"
        "`qr_wave_amplitude` · a number from 0 to 2 · built-in default: 0.6",
    )
    qr_wave_offset: Any = number(
        "Wave offset",
        "Middle of the sine.\n\n"
        "`qr_wave_offset` · a number from -2 to 2 · built-in default: -0.2",
    )
    qr_lookahead: Any = choice(
        "Lookahead", ["lazy", "full", "full_inverse", "bounded"],
        "Which candidates are evaluated. lazy and full choose the same token, bounded and full\\_inverse too; the latter two use one number per token.\n\n"
        "`qr_lookahead` · built-in default: lazy",
    )
    qr_lookahead_choice: Any = choice(
        "Lookahead choice", ["sample", "argmax"],
        "Draw from the scores, or take the best.\n\n"
        "`qr_lookahead_choice` · built-in default: sample",
    )
    qr_lookahead_k: Any = number(
        "Lookahead k",
        "Candidates per token, at most.\n\n"
        "`qr_lookahead_k` · a whole number from 1 to 256 · unit: tokens · built-in default: 20",
    )
    qr_lookahead_n: Any = number(
        "Lookahead n",
        "Most probable next tokens that the entropy of a candidate is computed over.\n\n"
        "`qr_lookahead_n` · a whole number from 2 to 1000 · unit: tokens · built-in default: 30",
    )
    qr_lookahead_min_p: Any = number(
        "Lookahead min p",
        "Candidates have at least this share of the largest probability. Without it broken pieces of words win, since they leave the most open.\n\n"
        "`qr_lookahead_min_p` · a number from 0 to 1 · built-in default: 0.05",
    )
    qr_confidence_threshold: Any = number(
        "Confidence threshold",
        "Where the largest probability reaches this, the token is chosen without looking ahead; 0 is off.\n\n"
        "`qr_confidence_threshold` · a number from 0 to 1 · built-in default: 0",
    )
    qr_think_ban: Any = flag(
        "Think ban",
        "Bans control tokens and the markers of a thinking block. Unset: on with lookahead, unless thinking was asked for.\n\n"
        "`qr_think_ban` · built-in default: unset",
    )
    qr_temperature_strategy: Any = choice(
        "Temperature strategy", ["fixed", "edt", "hvh_drift", "tt_exchange", "evdt_tt", "gdt", "dynatemp", "belltemp", "mix_temperatures", "ring_buffer_ar", "coherence_gate"],
        "How the temperature of a token follows from the distribution at hand. fixed is `qr_temperature` throughout.\n- fixed: One temperature, `qr_temperature`, for every token.\n- edt: Temperature follows the normalised entropy of the token: base \\* (H/ln V)\\^exponent.\n- hvh\\_drift: Temperature and min-p follow entropy and varentropy and how far both are from their running means.\n- tt\\_exchange: What min-p takes away in entropy is given back as temperature.\n- evdt\\_tt: Temperature and min-p are linear in entropy and varentropy; meant to be used with `qr_truncate_first`.\n- gdt: A bell over the normalised entropy, raised where varentropy is high and entropy low; min-p follows.\n- dynatemp: Temperature goes from center - range to center + range with a power of the normalised entropy.\n- belltemp: A bell over the normalised entropy plus a share of varentropy; min-p follows the temperature.\n- mix\\_temperatures: Two temperatures mixed as probabilities; the gate between them follows entropy and varentropy.\n- ring\\_buffer\\_ar: Tokens among the last chosen of the answer lose a fixed amount of their logit.\n- coherence\\_gate: Another strategy whose temperature is raised while the entropy server reports coherence in its draws.\n\n"
        "`qr_temperature_strategy` · built-in default: fixed",
    )
    qr_temperature: Any = number(
        "Temperature",
        "Divides the logits, or the logarithm of the lookahead score, before sampling. 0 takes the best. Other strategies than fixed set their own.\n\n"
        "`qr_temperature` · a number from 0 to 5 · built-in default: 1 · the chat's own `temperature` wins",
    )
    qr_entropy_source: Any = box(
        "Entropy source",
        "Name of the source of the bytes, one of those that the process has; empty is its default. `GET /v1/qr/entropy` of the gateway lists them.\n\n"
        "`qr_entropy_source` · text of at most 64 bytes without control characters · built-in default: unset",
    )
    qr_amplifier: Any = choice(
        "Amplifier", ["zscore_mean", "ecdf", "zscore_thought", "server"],
        "How bytes become the uniform number that picks the token.\n- zscore\\_mean: Standard score of the mean of the bytes, through the normal distribution.\n- ecdf: Place of the mean of the bytes among the means of calibration blocks of the same length.\n- zscore\\_thought: As zscore\\_mean, with a running total over the whole answer.\n- server: The entropy server makes the number itself.\n\n"
        "`qr_amplifier` · built-in default: zscore\\_mean",
    )
    qr_seed: Any = number(
        "Seed",
        "Makes the choice repeatable: numbers come from a generator instead of the entropy source.\n\n"
        "`qr_seed` · a whole number from -2\\^63 to 2\\^63-1 · built-in default: unset · the chat's own `seed` wins",
    )
    qr_top_k: Any = number(
        "Top k",
        "Plain decoding keeps this many of the most probable tokens; 0 and -1 keep all.\n\n"
        "`qr_top_k` · a whole number from -1 to 1000000 · unit: tokens · built-in default: 0 · the chat's own `top_k` wins",
    )
    qr_top_p: Any = number(
        "Top p",
        "Plain decoding keeps the most probable tokens up to this total probability; 1 keeps all, 0 keeps one.\n\n"
        "`qr_top_p` · a number from 0 to 1 · built-in default: 1 · the chat's own `top_p` wins",
    )
    qr_min_p: Any = number(
        "Min p",
        "Plain decoding keeps tokens with at least this share of the largest probability; 0 keeps all. Not used where the strategy sets its own.\n\n"
        "`qr_min_p` · a number from 0 to 1 · built-in default: 0 · the chat's own `min_p` wins",
    )
    qr_truncate_first: Any = flag(
        "Truncate first",
        "Plain decoding applies top-k and min-p to the distribution before the temperature instead of after it.\n\n"
        "`qr_truncate_first` · built-in default: off",
    )
    qr_frequency_penalty: Any = number(
        "Frequency penalty",
        "Subtracted from the logit of a token for every time that the answer has it.\n\n"
        "`qr_frequency_penalty` · a number from -2 to 2 · built-in default: 0 · the chat's own `frequency_penalty` wins",
    )
    qr_presence_penalty: Any = number(
        "Presence penalty",
        "Subtracted from the logit of a token that the answer has.\n\n"
        "`qr_presence_penalty` · a number from -2 to 2 · built-in default: 0 · the chat's own `presence_penalty` wins",
    )
    qr_repetition_penalty: Any = number(
        "Repetition penalty",
        "Divides the positive logit, and multiplies the negative one, of a token that the prompt or the answer has. 1 is off.\n\n"
        "`qr_repetition_penalty` · a number above 0, up to 10 · built-in default: 1 · the chat's own `repetition_penalty` wins",
    )
    qr_logit_bias: Any = area(
        "Logit bias",
        "Added to the logits of tokens, by their ids: `{\"50\": -100}` all but bans token 50. Written as JSON.\n\n"
        "`qr_logit_bias` · an object of up to 4096 token ids, each with a number from -100 to 100 · built-in default: unset · the chat's own `logit_bias` wins",
    )
    qr_entropy_prefetch: Any = flag(
        "Entropy prefetch",
        "Asks for the bytes of the next token before its logits exist. Faster with a distant source, and the record says so.\n\n"
        "`qr_entropy_prefetch` · built-in default: off",
    )
    qr_sample_count: Any = number(
        "Sample count",
        "Bytes taken from the entropy source for one token.\n\n"
        "`qr_sample_count` · a whole number from 1 to 1048576 · unit: bytes · built-in default: 20480",
    )
    qr_population_mean: Any = number(
        "Population mean",
        "Mean of one byte of the source, for the z-score. Unset: the source's own calibration, else that of a uniform byte, 127.5.\n\n"
        "`qr_population_mean` · a number from 0 to 255 · built-in default: unset",
    )
    qr_population_std: Any = number(
        "Population std",
        "Standard deviation of one byte of the source, for the z-score. Unset: the source's own calibration, else that of a uniform byte, 73.90027063549903.\n\n"
        "`qr_population_std` · a number from 1 to 255 · built-in default: unset",
    )
    qr_uniform_clamp_epsilon: Any = number(
        "Uniform clamp epsilon",
        "Keeps the uniform number this far away from 0 and from 1.\n\n"
        "`qr_uniform_clamp_epsilon` · a number from 1e-15 to 0.49 · built-in default: 1e-10",
    )
    qr_zscore_calibration_samples: Any = number(
        "Zscore calibration samples",
        "Measures mean and standard deviation of the source with this many draws before the first token, once per source and draw size.\n\n"
        "`qr_zscore_calibration_samples` · 0 (off) or a whole number from 2 to 10000 · unit: draws · built-in default: 0",
    )
    qr_draw_source_id: Any = box(
        "Draw source id",
        "For a server that makes the numbers itself: which of its sources; empty is the one bound to the API key.\n\n"
        "`qr_draw_source_id` · text of at most 128 bytes without control characters · built-in default: unset",
    )
    qr_draw_block_bytes: Any = number(
        "Draw block bytes",
        "For a server that makes the numbers itself: bytes that it integrates for one; 0 is the server's own choice.\n\n"
        "`qr_draw_block_bytes` · a whole number from 0 to 268435456 · unit: bytes · built-in default: 0",
    )
    qr_bypass: Any = flag(
        "Bypass",
        "Plain sampling by the standard fields (temperature, top\\_p and so on): all other qr\\_ keys are checked and not used.\n\n"
        "`qr_bypass` · built-in default: off",
    )
    qr_edt_base_temp: Any = number(
        "Edt base temp",
        "edt: temperature of a token whose distribution is uniform.\n\n"
        "`qr_edt_base_temp` · a number from 0 to 5 · built-in default: 0.8",
    )
    qr_edt_exponent: Any = number(
        "Edt exponent",
        "edt: power of the normalised entropy; 0 makes the temperature constant, a negative one turns it around.\n\n"
        "`qr_edt_exponent` · a number from -10 to 10 · built-in default: 0.5",
    )
    qr_edt_min_temp: Any = number(
        "Edt min temp",
        "edt: least temperature.\n\n"
        "`qr_edt_min_temp` · a number from 0 to 5 · built-in default: 0.1",
    )
    qr_edt_max_temp: Any = number(
        "Edt max temp",
        "edt: largest temperature; not under `qr_edt_min_temp`.\n\n"
        "`qr_edt_max_temp` · a number from 0 to 5 · built-in default: 2",
    )
    qr_hvh_t_base: Any = number(
        "Hvh t base",
        "hvh\\_drift: temperature before the terms below.\n\n"
        "`qr_hvh_t_base` · a number from 0 to 5 · built-in default: 1.35",
    )
    qr_hvh_alpha_h: Any = number(
        "Hvh alpha h",
        "hvh\\_drift: temperature per nat of entropy.\n\n"
        "`qr_hvh_alpha_h` · a number from -10 to 10 · built-in default: 0.3",
    )
    qr_hvh_alpha_vh: Any = number(
        "Hvh alpha vh",
        "hvh\\_drift: temperature per nat\\^2 of varentropy.\n\n"
        "`qr_hvh_alpha_vh` · a number from -10 to 10 · built-in default: -0.2",
    )
    qr_hvh_gamma_dh: Any = number(
        "Hvh gamma dh",
        "hvh\\_drift: temperature per nat that entropy is over its running mean.\n\n"
        "`qr_hvh_gamma_dh` · a number from -10 to 10 · built-in default: 1",
    )
    qr_hvh_delta_dvh: Any = number(
        "Hvh delta dvh",
        "hvh\\_drift: temperature per nat\\^2 that varentropy is over its running mean.\n\n"
        "`qr_hvh_delta_dvh` · a number from -10 to 10 · built-in default: 0.5",
    )
    qr_hvh_lambda_ema: Any = number(
        "Hvh lambda ema",
        "hvh\\_drift: weight of a new token in the running means; 0 keeps the first token's, 1 the last one's.\n\n"
        "`qr_hvh_lambda_ema` · a number from 0 to 1 · built-in default: 0.02",
    )
    qr_hvh_min_p_base: Any = number(
        "Hvh min p base",
        "hvh\\_drift: min-p before the terms below.\n\n"
        "`qr_hvh_min_p_base` · a number from -1 to 1 · built-in default: 0.025",
    )
    qr_hvh_kappa_h: Any = number(
        "Hvh kappa h",
        "hvh\\_drift: min-p per nat of entropy.\n\n"
        "`qr_hvh_kappa_h` · a number from -10 to 10 · built-in default: 0.03",
    )
    qr_hvh_nu_dh: Any = number(
        "Hvh nu dh",
        "hvh\\_drift: min-p per nat that entropy is over its running mean.\n\n"
        "`qr_hvh_nu_dh` · a number from -10 to 10 · built-in default: 0.02",
    )
    qr_tt_t_base: Any = number(
        "Tt t base",
        "tt\\_exchange: temperature where min-p takes nothing away.\n\n"
        "`qr_tt_t_base` · a number from 0 to 5 · built-in default: 1",
    )
    qr_tt_gamma: Any = number(
        "Tt gamma",
        "tt\\_exchange: temperature per nat of entropy that min-p takes away.\n\n"
        "`qr_tt_gamma` · a number from -10 to 10 · built-in default: 0.6",
    )
    qr_tt_min_p_base: Any = number(
        "Tt min p base",
        "tt\\_exchange: min-p of a token without entropy.\n\n"
        "`qr_tt_min_p_base` · a number from -1 to 1 · built-in default: 0.005",
    )
    qr_tt_min_p_scale: Any = number(
        "Tt min p scale",
        "tt\\_exchange: min-p per nat of entropy.\n\n"
        "`qr_tt_min_p_scale` · a number from -10 to 10 · built-in default: 0.025",
    )
    qr_evdt_t_base: Any = number(
        "Evdt t base",
        "evdt\\_tt: temperature before the terms below.\n\n"
        "`qr_evdt_t_base` · a number from 0 to 5 · built-in default: 1.25",
    )
    qr_evdt_alpha: Any = number(
        "Evdt alpha",
        "evdt\\_tt: temperature per nat of entropy.\n\n"
        "`qr_evdt_alpha` · a number from -10 to 10 · built-in default: 0.35",
    )
    qr_evdt_beta: Any = number(
        "Evdt beta",
        "evdt\\_tt: temperature per nat\\^2 of varentropy.\n\n"
        "`qr_evdt_beta` · a number from -10 to 10 · built-in default: -0.1",
    )
    qr_evdt_min_p_base: Any = number(
        "Evdt min p base",
        "evdt\\_tt: min-p before the terms below.\n\n"
        "`qr_evdt_min_p_base` · a number from -1 to 1 · built-in default: 0.008",
    )
    qr_evdt_min_p_scale: Any = number(
        "Evdt min p scale",
        "evdt\\_tt: min-p per nat of entropy.\n\n"
        "`qr_evdt_min_p_scale` · a number from -10 to 10 · built-in default: 0.015",
    )
    qr_evdt_min_p_vh: Any = number(
        "Evdt min p vh",
        "evdt\\_tt: min-p per nat\\^2 of varentropy.\n\n"
        "`qr_evdt_min_p_vh` · a number from -10 to 10 · built-in default: 0.005",
    )
    qr_gdt_t_base: Any = number(
        "Gdt t base",
        "gdt: temperature before bell and boost.\n\n"
        "`qr_gdt_t_base` · a number from 0 to 5 · built-in default: 0.582",
    )
    qr_gdt_t_peak: Any = number(
        "Gdt t peak",
        "gdt: height of the bell.\n\n"
        "`qr_gdt_t_peak` · a number from 0 to 1.5 · built-in default: 1.402",
    )
    qr_gdt_mu: Any = number(
        "Gdt mu",
        "gdt: normalised entropy at the top of the bell.\n\n"
        "`qr_gdt_mu` · a number from -1 to 2 · built-in default: 0.397",
    )
    qr_gdt_sigma: Any = number(
        "Gdt sigma",
        "gdt: width of the bell, in normalised entropy.\n\n"
        "`qr_gdt_sigma` · a number above 0, up to 10 · built-in default: 0.283",
    )
    qr_gdt_alpha: Any = number(
        "Gdt alpha",
        "gdt: temperature that high varentropy adds where there is no entropy.\n\n"
        "`qr_gdt_alpha` · a number from -10 to 10 · built-in default: 0.952",
    )
    qr_gdt_lambda_vh: Any = number(
        "Gdt lambda vh",
        "gdt: varentropy, in nat\\^2, at which 63 % of the boost is reached.\n\n"
        "`qr_gdt_lambda_vh` · a number above 0, up to 1000 · built-in default: 10",
    )
    qr_gdt_min_p_base: Any = number(
        "Gdt min p base",
        "gdt: min-p where the temperature is the base.\n\n"
        "`qr_gdt_min_p_base` · a number from -1 to 1 · built-in default: 0.01",
    )
    qr_gdt_min_p_scale: Any = number(
        "Gdt min p scale",
        "gdt: min-p that a temperature `qr_gdt_t_peak` over the base adds.\n\n"
        "`qr_gdt_min_p_scale` · a number from -10 to 10 · built-in default: 0.081",
    )
    qr_dynatemp_t_center: Any = number(
        "Dynatemp t center",
        "dynatemp: middle of the temperatures.\n\n"
        "`qr_dynatemp_t_center` · a number from 0 to 5 · built-in default: 1.31",
    )
    qr_dynatemp_t_range: Any = number(
        "Dynatemp t range",
        "dynatemp: distance of the ends from the middle.\n\n"
        "`qr_dynatemp_t_range` · a number from 0 to 5 · built-in default: 0.38",
    )
    qr_dynatemp_exponent: Any = number(
        "Dynatemp exponent",
        "dynatemp: power of the normalised entropy.\n\n"
        "`qr_dynatemp_exponent` · a number above 0, up to 10 · built-in default: 1",
    )
    qr_dynatemp_min_p: Any = number(
        "Dynatemp min p",
        "dynatemp: min-p of every token.\n\n"
        "`qr_dynatemp_min_p` · a number from 0 to 0.15 · built-in default: 0.026",
    )
    qr_belltemp_t_base: Any = number(
        "Belltemp t base",
        "belltemp: temperature before the bell.\n\n"
        "`qr_belltemp_t_base` · a number from 0 to 5 · built-in default: 0.7",
    )
    qr_belltemp_t_peak: Any = number(
        "Belltemp t peak",
        "belltemp: height of the bell.\n\n"
        "`qr_belltemp_t_peak` · a number from 0 to 1.5 · built-in default: 0.6",
    )
    qr_belltemp_mu: Any = number(
        "Belltemp mu",
        "belltemp: normalised entropy at the top of the bell.\n\n"
        "`qr_belltemp_mu` · a number from -1 to 2 · built-in default: 0.35",
    )
    qr_belltemp_sigma: Any = number(
        "Belltemp sigma",
        "belltemp: width of the bell, in normalised entropy.\n\n"
        "`qr_belltemp_sigma` · a number above 0, up to 10 · built-in default: 0.15",
    )
    qr_belltemp_vh_weight: Any = number(
        "Belltemp vh weight",
        "belltemp: temperature that high varentropy adds.\n\n"
        "`qr_belltemp_vh_weight` · a number from -10 to 10 · built-in default: 0",
    )
    qr_belltemp_lambda_vh: Any = number(
        "Belltemp lambda vh",
        "belltemp: varentropy, in nat\\^2, at which 63 % of that is reached.\n\n"
        "`qr_belltemp_lambda_vh` · a number above 0, up to 1000 · built-in default: 10",
    )
    qr_belltemp_min_p_base: Any = number(
        "Belltemp min p base",
        "belltemp: min-p at temperature 0.3.\n\n"
        "`qr_belltemp_min_p_base` · a number from -1 to 1 · built-in default: 0",
    )
    qr_belltemp_min_p_scale: Any = number(
        "Belltemp min p scale",
        "belltemp: what is added to min-p at temperature 2.2; linear between.\n\n"
        "`qr_belltemp_min_p_scale` · a number from -10 to 10 · built-in default: 0",
    )
    qr_mix_t_cool: Any = number(
        "Mix t cool",
        "mix\\_temperatures: temperature of the cool share.\n\n"
        "`qr_mix_t_cool` · a number from 0.3 to 2.2 · built-in default: 0.7",
    )
    qr_mix_t_hot: Any = number(
        "Mix t hot",
        "mix\\_temperatures: temperature of the hot share, which the gate sets.\n\n"
        "`qr_mix_t_hot` · a number from 0.3 to 2.2 · built-in default: 1.3",
    )
    qr_mix_gate_a: Any = number(
        "Mix gate a",
        "mix\\_temperatures: how steeply the share of the hot one rises with entropy, per nat.\n\n"
        "`qr_mix_gate_a` · a number from -10000 to 10000 · built-in default: 1.5",
    )
    qr_mix_gate_b: Any = number(
        "Mix gate b",
        "mix\\_temperatures: entropy in the middle of the rise, in nats.\n\n"
        "`qr_mix_gate_b` · a number from -100 to 100 · built-in default: 1.3",
    )
    qr_mix_gate_c: Any = number(
        "Mix gate c",
        "mix\\_temperatures: how steeply the share of the hot one rises with varentropy, per nat\\^2.\n\n"
        "`qr_mix_gate_c` · a number from -10000 to 10000 · built-in default: 0.8",
    )
    qr_mix_gate_d: Any = number(
        "Mix gate d",
        "mix\\_temperatures: varentropy in the middle of the rise, in nat\\^2.\n\n"
        "`qr_mix_gate_d` · a number from -1000 to 1000 · built-in default: 1.2",
    )
    qr_mix_min_p: Any = number(
        "Mix min p",
        "mix\\_temperatures: min-p of every token.\n\n"
        "`qr_mix_min_p` · a number from 0 to 0.15 · built-in default: 0.005",
    )
    qr_rba_buffer_n: Any = number(
        "Rba buffer n",
        "ring\\_buffer\\_ar: how many of the last tokens of the answer are remembered; the prompt is not.\n\n"
        "`qr_rba_buffer_n` · a whole number from 1 to 8192 · unit: tokens · built-in default: 32",
    )
    qr_rba_lam: Any = number(
        "Rba lam",
        "ring\\_buffer\\_ar: what a token loses per unit that its likeness is over the threshold, in logits.\n\n"
        "`qr_rba_lam` · a number from 0 to 100 · built-in default: 2.5",
    )
    qr_rba_threshold: Any = number(
        "Rba threshold",
        "ring\\_buffer\\_ar: likeness from which a token loses; a remembered token's is 1, any other's 0.\n\n"
        "`qr_rba_threshold` · a number from -1 to 1 · built-in default: 0.65",
    )
    qr_rba_t: Any = number(
        "Rba t",
        "ring\\_buffer\\_ar: temperature of every token.\n\n"
        "`qr_rba_t` · a number from 0 to 5 · built-in default: 1",
    )
    qr_rba_min_p: Any = number(
        "Rba min p",
        "ring\\_buffer\\_ar: min-p of every token.\n\n"
        "`qr_rba_min_p` · a number from 0 to 0.15 · built-in default: 0.005",
    )
    qr_coherence_inner_strategy: Any = choice(
        "Coherence inner strategy", ["fixed", "edt", "hvh_drift", "tt_exchange", "evdt_tt", "gdt", "dynatemp", "belltemp", "mix_temperatures", "ring_buffer_ar"],
        "coherence\\_gate: the strategy whose temperature is raised.\n\n"
        "`qr_coherence_inner_strategy` · built-in default: fixed",
    )
    qr_coherence_threshold: Any = number(
        "Coherence threshold",
        "coherence\\_gate: z-score of the server's statistic from which a draw counts.\n\n"
        "`qr_coherence_threshold` · a number from -100 to 100 · built-in default: 3.5",
    )
    qr_coherence_t_boost_max: Any = number(
        "Coherence t boost max",
        "coherence\\_gate: temperature that a draw of correlation 1 adds.\n\n"
        "`qr_coherence_t_boost_max` · a number from 0 to 5 · built-in default: 0.5",
    )
    qr_coherence_ema_alpha: Any = number(
        "Coherence ema alpha",
        "coherence\\_gate: weight of the newest draw in the running boost.\n\n"
        "`qr_coherence_ema_alpha` · a number from 0 to 1 · built-in default: 0.3",
    )


class Unshared(Stored):
    """The parameters that only administrators set: they fill the server's log and memory."""

    qr_log_level: Any = choice(
        "Log level", ["none", "summary", "full"],
        "What the engine's log says of each token of this request: nothing, a line of its main values, or its whole record as JSON.\n\n"
        "`qr_log_level` · built-in default: none",
    )
    qr_diagnostic_mode: Any = flag(
        "Diagnostic mode",
        "Keeps the whole record of every token, each diagnostic of the strategy included.\n\n"
        "`qr_diagnostic_mode` · built-in default: off",
    )


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
