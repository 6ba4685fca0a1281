"""Turns a GGUF file into what vLLM serves: float32 weights in a folder, and those of a tiny model in another.

usage: vllm-model.py MODEL.gguf FOLDER TINY-FOLDER

The tiny one has the same tokenizer and two small layers with random weights, so made that its next token is one of
some hundred and depends on all that went before.
"""

import json
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": False,
}
SEED = 7
# Standard deviation of its logits: a row of 49,152 normal ones then has an entropy of 10.8 - 3.5**2 / 2 nats.
SPREAD = 3.5


def weights(model):
    """By name; transformers itself does not save a model that came from a GGUF file."""
    found = {name: w.detach().to(torch.float32).contiguous() for name, w in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    return found


def randomize(model):
    """Gives the same random weights to every run, each layer's output the size of its input."""
    torch.manual_seed(SEED)
    for name, w in model.named_parameters():
        size = w.shape[-1] ** -0.5
        if w.dim() == 1:
            torch.nn.init.ones_(w)
        elif "embed_tokens" in name:
            torch.nn.init.normal_(w)
        else:
            torch.nn.init.normal_(w, std=SPREAD * size if "lm_head" in name else size)


def settings(model):
    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):
        config.pop(key, None)
    return {**config, "architectures": [type(model).__name__], "dtype": "float32"}


def save(folder, tokenizer, model, config):
    folder.mkdir(parents=True)
    tokenizer.save_pretrained(folder)
    save_file(weights(model), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n")


def main():
    gguf, folder, tiny = (pathlib.Path(a) for a in sys.argv[1:])
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    config = settings(model)
    save(folder, tokenizer, model, config)
    small = AutoModelForCausalLM.from_config(type(model.config)(**{**config, **TINY}))
    randomize(small)
    save(tiny, tokenizer, small, {**config, **TINY})


if __name__ == "__main__":
    main()
