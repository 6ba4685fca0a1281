#!/usr/bin/env python3
"""Write tiny random-weight GGUF models of the four memory types.

  mktiny.py OUTDIR                            llama, gemma3, lfm2 and mamba without tokenizer
  mktiny.py OUTDIR --tokenizer-from X.gguf    the same with X's tokenizer and chat template

The same options give the same bytes. Embeddings are tied (no output.weight) and small beside
the layers' outputs, so that no token predicts itself. The logits are E . (w * rmsnorm(h)): the
norm would give every step the same spread of logits, so the weights w of the output norm are
lognormal (a few dimensions dominate) and the entropy changes from step to step.
"""
import argparse
import os

import gguf
import numpy as np

ARCHS = ("llama", "gemma3", "lfm2", "mamba")
HEAD_DIM = 16
LAYERS = 4
WINDOW = 32  # gemma3: SWA, full, SWA, full
CONTEXT = 8192
SPREAD = 1.2  # sigma of the lognormal output norm
STATE, CONV = 16, 4  # mamba


class Model:
    """One model: its sizes, its random stream and the file it is written to."""

    def __init__(self, arch, args, tokenizer):
        self.arch, self.args, self.tokenizer = arch, args, tokenizer
        self.vocab = len(tokenizer["tokenizer.ggml.tokens"].data) if tokenizer else args.vocab
        self.hidden = 32 if tokenizer else 64
        self.half = tokenizer is not None
        self.heads = self.hidden // HEAD_DIM
        self.kv_heads = max(1, self.heads // 2)
        self.feed_forward = 2 * self.hidden
        self.inner = 2 * self.hidden
        self.rank = -(-self.hidden // 16)
        self.rng = np.random.default_rng([args.seed, ARCHS.index(arch), self.vocab, self.hidden])
        kind = "-tok" if tokenizer else ""
        self.path = os.path.join(args.outdir, f"tiny-{arch}{kind}{args.suffix}.gguf")
        self.w = gguf.GGUFWriter(self.path, arch)

    # Metadata.

    def describe(self):
        w = self.w
        w.add_type("model")
        w.add_name(f"tiny random {self.arch}")
        w.add_file_type(1 if self.half else 0)
        w.add_context_length(CONTEXT)
        w.add_embedding_length(self.hidden)
        w.add_block_count(LAYERS)
        w.add_vocab_size(self.vocab)
        w.add_layer_norm_rms_eps(1e-6)
        if self.arch == "mamba":
            self.describe_mamba()
        else:
            self.describe_attention()
        self.describe_tokenizer()

    def describe_attention(self):
        w = self.w
        w.add_feed_forward_length(self.feed_forward)
        w.add_head_count(self.heads)
        kv = self.kv_heads
        w.add_head_count_kv([0 if i % 2 == 0 else kv for i in range(LAYERS)] if self.arch == "lfm2" else kv)
        w.add_rope_freq_base(10000.0)
        if self.arch == "lfm2":
            w.add_shortconv_l_cache(3)
            return
        w.add_key_length(HEAD_DIM)
        w.add_value_length(HEAD_DIM)
        w.add_rope_dimension_count(HEAD_DIM)
        if self.arch == "gemma3":
            w.add_sliding_window(WINDOW)
            w.add_sliding_window_pattern([i % 2 == 0 for i in range(LAYERS)])
            w.add_float32("gemma3.rope.freq_base_swa", 10000.0)

    def describe_mamba(self):
        w = self.w
        w.add_feed_forward_length(0)
        w.add_head_count(0)
        w.add_ssm_conv_kernel(CONV)
        w.add_ssm_inner_size(self.inner)
        w.add_ssm_state_size(STATE)
        w.add_ssm_time_step_rank(self.rank)

    def describe_tokenizer(self):
        if not self.tokenizer:
            self.w.add_tokenizer_model("none")
            return
        for key, field in self.tokenizer.items():
            kind = field.types[0]
            if kind == gguf.GGUFValueType.ARRAY:
                self.w.add_key_value(key, field.contents(), kind, sub_type=field.types[-1])
            else:
                self.w.add_key_value(key, field.contents(), kind)

    # Weights. The order of the draws is part of what makes the files reproducible.

    def matrix(self, name, rows, columns, gain=1.0):
        m = self.rng.standard_normal((rows, columns)) * (gain / np.sqrt(columns))
        self.w.add_tensor(name, m.astype(np.float16 if self.half else np.float32))

    def vector(self, name, values):
        self.w.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))

    def near_one(self, name, n, scale=1.0):
        self.vector(name, scale * np.exp(0.1 * self.rng.standard_normal(n)))

    def embeddings(self):
        # The residual stream's rms is 0.1; gemma3 multiplies by sqrt(hidden).
        size = 0.1 / (np.sqrt(self.hidden) if self.arch == "gemma3" else 1.0)
        rows = self.rng.standard_normal((self.vocab, self.hidden)) * size
        if self.tokenizer and self.args.eog_boost != 1.0:
            for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"):
                if key in self.tokenizer:
                    rows[self.tokenizer[key].contents()] *= self.args.eog_boost
        self.w.add_tensor("token_embd.weight", rows.astype(np.float16 if self.half else np.float32))
        norm = np.exp(SPREAD * self.rng.standard_normal(self.hidden))
        norm = norm * np.where(self.rng.random(self.hidden) < 0.5, -1, 1)
        sigma = 0.85 * float(np.sqrt(2 * np.log(self.vocab)))  # mean standard deviation of the logits
        norm *= sigma / size / np.sqrt((norm**2).sum())
        self.vector("token_embd_norm.weight" if self.arch == "lfm2" else "output_norm.weight", norm)

    def mamba(self, p):
        hidden, inner = self.hidden, self.inner
        self.matrix(p + "ssm_in.weight", 2 * inner, hidden, 1.5)
        self.vector(p + "ssm_conv1d.weight", self.rng.standard_normal((inner, CONV)) * 0.7)
        self.vector(p + "ssm_conv1d.bias", self.rng.standard_normal(inner) * 0.1)
        self.matrix(p + "ssm_x.weight", self.rank + 2 * STATE, inner, 3.0)
        self.matrix(p + "ssm_dt.weight", inner, self.rank, 0.5)
        step = np.exp(self.rng.uniform(np.log(0.01), np.log(0.3), inner))
        self.vector(p + "ssm_dt.bias", step + np.log(-np.expm1(-step)))
        self.vector(p + "ssm_a", -np.tile(np.arange(1, STATE + 1) / 4.0, (inner, 1)))
        self.vector(p + "ssm_d", np.full(inner, 0.5))
        self.matrix(p + "ssm_out.weight", hidden, inner, 1.0)

    def convolution(self, p):
        self.vector(p + "shortconv.conv.weight", self.rng.standard_normal((self.hidden, 3)) * 0.8)
        self.matrix(p + "shortconv.in_proj.weight", 3 * self.hidden, self.hidden, 1.2)
        self.matrix(p + "shortconv.out_proj.weight", self.hidden, self.hidden)

    def attention(self, p):
        gain = 1.6
        normed = self.arch in ("gemma3", "lfm2")  # q and k are normalised: the norm carries the gain
        self.matrix(p + "attn_q.weight", self.heads * HEAD_DIM, self.hidden, 1.0 if normed else gain)
        self.matrix(p + "attn_k.weight", self.kv_heads * HEAD_DIM, self.hidden, 1.0 if normed else gain)
        self.matrix(p + "attn_v.weight", self.kv_heads * HEAD_DIM, self.hidden, 1.5)
        self.matrix(p + "attn_output.weight", self.hidden, self.heads * HEAD_DIM, 1.5)
        if normed:
            self.near_one(p + "attn_q_norm.weight", HEAD_DIM, gain)
            self.near_one(p + "attn_k_norm.weight", HEAD_DIM, gain)

    def layer(self, i):
        p = f"blk.{i}."
        self.near_one(p + "attn_norm.weight", self.hidden)
        if self.arch == "mamba":
            self.mamba(p)
            return
        if self.arch == "lfm2" and i % 2 == 0:
            self.convolution(p)
        else:
            self.attention(p)
        if self.arch == "gemma3":
            self.near_one(p + "post_attention_norm.weight", self.hidden)
            self.near_one(p + "post_ffw_norm.weight", self.hidden, 0.8)
        self.near_one(p + "ffn_norm.weight", self.hidden)
        self.matrix(p + "ffn_gate.weight", self.feed_forward, self.hidden, 1.5)
        self.matrix(p + "ffn_up.weight", self.feed_forward, self.hidden, 1.2)
        self.matrix(p + "ffn_down.weight", self.hidden, self.feed_forward)

    def write(self):
        self.describe()
        self.embeddings()
        for i in range(LAYERS):
            self.layer(i)
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()
        print(f"{os.path.basename(self.path)}  {os.path.getsize(self.path) / 1e6:.2f} MB  vocabulary {self.vocab}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outdir")
    parser.add_argument("--arch", action="append", choices=ARCHS, help="default: all four")
    parser.add_argument("--tokenizer-from", metavar="GGUF")
    parser.add_argument("--vocab", type=int, default=512, help="vocabulary without tokenizer")
    parser.add_argument("--eog-boost", type=float, default=1.0, help="factor on the embeddings of the end tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--suffix", default="", help="end of the file's name, before .gguf")
    return parser.parse_args()


def main():
    args = parse()
    os.makedirs(args.outdir, exist_ok=True)
    tokenizer = None
    if args.tokenizer_from:
        fields = gguf.GGUFReader(args.tokenizer_from).fields
        tokenizer = {k: f for k, f in fields.items() if k.startswith("tokenizer.")}
    for arch in args.arch or ARCHS:
        Model(arch, args, tokenizer).write()


if __name__ == "__main__":
    main()
