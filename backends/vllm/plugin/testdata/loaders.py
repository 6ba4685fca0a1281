"""Loads the plugin with vLLM's own loaders, runs a step of each model runner's interface with vLLM's own types, and refuses as it should.

Run by hand or by the tests with the Python of an environment that has vLLM.
"""

import os
import sys
import tempfile
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]

import numpy as np  # noqa: E402
import scripted  # noqa: E402
import torch  # noqa: E402
import vllm  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.exceptions import VLLMValidationError  # noqa: E402
from vllm.v1.sample import logits_processor as one  # noqa: E402
from vllm.v1.worker.gpu.sample import logits_processor as two  # noqa: E402

CLASS, VOCAB = "qr_vllm:Processor", 64


def config():
    model = {"served_model_name": "m", "model": "m", "max_model_len": 64, "logprobs_mode": "raw_logprobs", "runner_type": "generate"}
    model |= {"logits_processors": [CLASS], "hf_config": SimpleNamespace(eos_token_id=3)}
    return SimpleNamespace(
        model_config=SimpleNamespace(**model),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, data_parallel_rank=0, enable_batch_sharded_sampling=False),
        scheduler_config=SimpleNamespace(max_num_seqs=4, max_num_batched_tokens=64, async_scheduling=False),
        speculative_config=None,
        reasoning_config=None,
    )


def params(rid, **more):
    return SamplingParams(temperature=0, extra_args={"qr_rid": rid, "qr_v": 1, "qr_cfg": "{}"} | more)


def check(x, row, token):
    assert int(x[row].argmax()) == token and int((x[row] > -torch.inf).sum()) == 1, x[row]


def admission():
    validators = [
        lambda p: one.validate_logits_processors_parameters([CLASS], p),
        two.build_custom_logits_processors_params_validator([CLASS]),
    ]
    for validate in validators:
        validate(params("r"))
        validate(SamplingParams())
        try:
            validate(params("r", qr_temprature=1))
        except VLLMValidationError as e:
            assert "qr_temprature=1" in str(e)
        else:
            raise AssertionError("a misspelt key was admitted")


def first(sidecar):
    cfg = config()
    loaded = one.build_logitsprocs(cfg, torch.device("cpu"), False, False, (CLASS,))
    ours = [p for p in loaded.all if type(p).__name__ == "Processor"]
    assert len(ours) == 1 and ours[0] in list(loaded.non_argmax_invariant)
    builder = one.BatchUpdateBuilder()
    out = []
    builder.added.append((0, SamplingParams(), [1], []))
    builder.added.append((1, params("first"), [1, 2], out))
    ours[0].update_state(builder.get_and_reset(2))
    for step in range(3):
        x = torch.randn(2, VOCAB)
        plain = x[0].clone()
        with torch.inference_mode():
            assert ours[0].apply(x) is x
        check(x, 1, scripted.token_of("first", step, VOCAB))
        assert torch.equal(x[0], plain)
        out.append(0)
        ours[0].update_state(None)
    return ours[0]


def second(sidecar):
    def ints(*shape):
        a = torch.zeros(shape, dtype=torch.int32)
        return SimpleNamespace(np=a.numpy(), gpu=a)

    states = SimpleNamespace(device=torch.device("cpu"), max_num_reqs=4, vocab_size=VOCAB, all_token_ids=ints(4, 64))
    states.prompt_len, states.prefill_len, states.total_len = ints(4), ints(4), ints(4)
    (ours,) = two.build_custom_logits_processors(config(), states, False, (CLASS,))
    states.prompt_len.np[2] = states.prefill_len.np[2] = 2
    assert ours.add_request(2, params("second")) is True and ours.add_request(0, SamplingParams()) is False
    ours.apply_staged_writes()
    for step in range(3):
        x = torch.randn(2, VOCAB)
        rows = dict.fromkeys(("expanded_idx_mapping", "idx_mapping", "expanded_local_pos", "input_ids", "pos"))
        ctx = two.LogitsContext(**rows, idx_mapping_np=np.array([2, 0]), seq_lens_upper_bound_np=np.array([2 + step, 9]))
        with torch.inference_mode():
            assert ours.apply(x, ctx) is x
        check(x, 0, scripted.token_of("second", step, VOCAB))
        assert int((x[1] > -torch.inf).sum()) == VOCAB
    return ours


def main():
    admission()
    with tempfile.TemporaryDirectory() as folder:
        for rows in ("compact", "full"):
            os.environ |= {"QR_SIDECAR": folder + "/s", "QR_ROWS": rows, "QR_DEADLINE_MS": "20000"}
            sidecar = scripted.Sidecar(folder + "/s")
            for p in (first(sidecar), second(sidecar)):
                assert p.link, p.said
                p.link.sock.close()
            sidecar.kill()
            assert [h["runner"] for h in sidecar.hellos] == ["v1", "v2"] and sidecar.hellos[0]["vllm"] == vllm.__version__
    print("vLLM", vllm.__version__, "loads", CLASS, "in both runners")


main()
