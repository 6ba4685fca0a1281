"""The interface of the second model runner."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RequestStates:
    device: Any
    max_num_reqs: int
    vocab_size: int
    all_token_ids: Any
    prompt_len: Any
    prefill_len: Any
    total_len: Any


@dataclass(frozen=True)
class LogitsContext:
    idx_mapping_np: Any
    seq_lens_upper_bound_np: Any


class LogitsProcessor(ABC):
    def __init__(self, vllm_config, req_states): ...

    @classmethod
    def validate_params(cls, sampling_params):
        return None

    def add_request(self, req_idx, sampling_params):
        return True

    def apply_staged_writes(self): ...

    @abstractmethod
    def apply(self, logits, ctx): ...
