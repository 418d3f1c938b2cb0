"""Text written by a language model of transformers: `generate()` with its cache, token after token.

The weights are random, the sizes those of models that people run on a CPU. Each row is a model of its own process, in
which eager, decorated and compiled `generate()` write the same tokens in turn.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import hybrid_infer
from benchmarks import _measure, _subject

PROMPT, NEW = 16, 32  # tokens
FORMS = ("eager", "decorated", "torch.compile")


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=768, n_head=12, bos_token_id=None, eos_token_id=None))


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=576, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def _qwen() -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=32000, hidden_size=256, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


MODELS: dict[str, Callable[[], Any]] = {
    "GPT-2, 124M": _gpt2,
    "Llama, 55M": _llama,
    "Qwen2, 14M": _qwen,
}


def measure(name: str, rounds: int) -> dict[str, Any]:
    import torch

    logging.disable(logging.WARNING)
    prompt = torch.randint(0, 5000, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    told = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    with _measure.store(), _subject.no_grad("torch"):
        made = {}
        for form in FORMS:
            torch.manual_seed(0)
            made[form] = MODELS[name]().eval()
        hybrid_infer.reset_stats()
        hybrid_infer.inference(made["decorated"], backend="auto")
        compiled = made["torch.compile"]
        compiled.forward = torch.compile(compiled.forward, dynamic=True)
        runs = {form: functools.partial(model.generate, prompt, **told) for form, model in made.items()}
        tokens = {form: run() for form, run in runs.items()}
        seconds = _measure.in_turn(runs, rounds)
        counts = next(iter(hybrid_infer.stats().values()))
    return {
        "model": name,
        "parameters": sum(weight.numel() for weight in made["eager"].parameters()),
        "seconds": {form: [value / NEW for value in found] for form, found in seconds.items()},
        "over_eager": {form: _measure.ratio(seconds["eager"], seconds[form]) for form in FORMS[1:]},
        "equal": {form: bool(torch.equal(tokens["eager"], found)) for form, found in tokens.items()},
        "captures": counts["captures"],
        "eager_calls": counts["eager_calls"],
        "served": ", ".join(_subject.engines(made["decorated"])) or "eager",
    }


def show(results: Sequence[dict[str, Any]]) -> str:
    rows = []
    for result in results:
        different = [form for form, equal in result["equal"].items() if not equal]
        rows.append((
            result["model"],
            *(_measure.spread_text(result["seconds"][form]) for form in FORMS),
            *(_measure.ratio_text(result["over_eager"][form]) for form in FORMS[1:]),
            f"{1 / statistics.median(result['seconds']['decorated']):.0f}",
            ", ".join(different) or "none",
            result["served"],
        ))  # fmt: skip
    head = (
        "ms per token, median (quartiles)", *FORMS, "decorated over eager", "compiled over eager", "tokens/s",
        "other tokens", "chosen",
    )  # fmt: skip
    title = f"generate() of transformers, {NEW} tokens after a prompt of {PROMPT}, batch 1, greedy"
    return _measure.table(title, head, rows)


def main(rounds: int) -> str:
    found = [_measure.child("benchmarks.generate", "--only", name, "--rounds", str(rounds)) for name in MODELS]
    _measure.save("generate", {"results": found})
    return show(found)


def _command_line() -> None:
    parser: argparse.ArgumentParser = _measure.arguments(__doc__ or "")
    parser.add_argument("--only", choices=list(MODELS), help="measure one model in this process, and print JSON")
    options = parser.parse_args()
    print(json.dumps(measure(options.only, options.rounds)) if options.only else main(options.rounds))


if __name__ == "__main__":
    _command_line()
