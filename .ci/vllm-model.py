"""Turns a GGUF file into what vLLM serves: a folder of float32 weights, and a tiny model's folder without any.

usage: vllm-model.py MODEL.gguf FOLDER TINY-FOLDER

The tiny one has the same tokenizer and two small layers; vLLM makes up its weights (--load-format dummy).
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
}


def weights(model):
    """By name; transformers itself does not save a model that came from a GGUF file."""
    found = {name: w.detach().to(torch.float32).contiguous() for name, w in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    return found


def settings(model):
    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):
        config.pop(key, None)
    return {**config, "architectures": [type(model).__name__], "dtype": "float32"}


def save(folder, tokenizer, config):
    folder.mkdir(parents=True)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n")


def main():
    gguf, folder, tiny = (pathlib.Path(a) for a in sys.argv[1:])
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    config = settings(model)
    save(folder, tokenizer, config)
    save_file(weights(model), folder / "model.safetensors", metadata={"format": "pt"})
    save(tiny, tokenizer, {**config, **TINY})


if __name__ == "__main__":
    main()
