"""Write text with a language model of transformers: `generate()` as it is, each of its steps a static graph.

The model is a small Llama whose weights are random, so that nothing is downloaded: what it writes is noise, and what
counts is that the tokens are eager's. Prompts of several lengths are answered; the cache of keys and values is
transformers' own, an object that the decorated `forward` is given, and that grows by one token at each step.
"""

from __future__ import annotations

import _table

options = _table.arguments(__doc__)

import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from hybrid_infer import inference  # noqa: E402

NEW = 24  # tokens for each prompt
PROMPTS = (5, 9, 16, 7)  # their lengths


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048, hidden_size=384, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=6,
        num_key_value_heads=3, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def answers(writer: LlamaForCausalLM) -> torch.Tensor:
    """The new tokens for all prompts, (prompts, NEW)."""
    draw = torch.Generator().manual_seed(1)
    written = []
    for length in PROMPTS:
        prompt = torch.randint(0, 2048, (1, length), generator=draw)
        mask = torch.ones_like(prompt)
        tokens = writer.generate(prompt, attention_mask=mask, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
        written.append(tokens[0, length:])
    return torch.stack(written)


@torch.no_grad()
def main() -> None:
    eager, hybrid = model(), inference(model())
    prompt = torch.ones(1, 4, dtype=torch.long)
    eager_times, times, expected, found = _table.compare(
        (lambda: eager(prompt).logits, lambda: hybrid(prompt).logits),
        (lambda: answers(eager), lambda: answers(hybrid)),
        options.seconds,
    )
    if not torch.equal(expected, found):
        raise SystemExit("the tokens differ from the eager ones")
    counts = _table.served("LlamaForCausalLM.forward")
    title = f"Llama of 4 layers, {NEW} tokens for each of {len(PROMPTS)} prompts, transformers' generate()"
    _table.show(title, eager_times, times, 0.0, counts)
    print("  tokens                   the same as eager's")


if __name__ == "__main__":
    main()
