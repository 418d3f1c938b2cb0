"""Within one process: rebinding, cycles, what is skipped, what it costs."""

from __future__ import annotations

import json
import os
import textwrap
from typing import Any

import pytest
from fingerprint_support import define, of

from hybrid_infer.fingerprint._fingerprint import Fingerprint, fingerprint

pytestmark = pytest.mark.processes

REBOUND = {
    "global": ("K = 2\ndef f(x): return x * K", "K = 3", "global K"),
    "helper": ("def g(x): return x\ndef f(x): return g(x)", "g = lambda x: -x", "global g"),
    "appearing": ("def f(x): return K", "K = 3", "global K"),
    "class_attribute": ("class C:\n k = 2\nc = C()\ndef f(x): return c.k", "C.k = 3", "user_module.C.k"),
    "method": ("class C:\n def m(s): return 2\nc = C()\ndef f(x): return c.m()", "C.m = print", "user_module.C.m"),
    "code": ("def g(x): return x\ndef f(x): return g(x)", "g.__code__ = (lambda x: 0).__code__", "function user"),
    "default": ("def f(x, k=2): return x", "f.__defaults__ = (3,)", "function user_module.f"),
    "cell": (
        """
        def make():
            k = 2
            def f(x): return x * k
            def put(v):
                nonlocal k
                k = v
            return f, put
        f, put = make()
        """,
        "put(3)",
        "a closure cell",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REBOUND)
def test_rebinding_is_seen_at_run_time(name: str) -> None:
    source, change, what = REBOUND[name]
    scope = define(source)
    before = of(scope["f"])
    assert before.rebound() == ""
    exec(change, scope)
    assert before.rebound().startswith(what)
    assert of(scope["f"]).digest != before.digest
    assert of(scope["f"]).rebound() == ""


def test_what_is_skipped_is_left_out() -> None:
    scope = define("class C: pass\nc = C()\nc.k = 2\ndef f(x): return c.k")
    before = of(scope["f"], skip=lambda value: value is scope["c"])
    scope["c"].k = open(os.devnull)  # noqa: SIM115
    with scope["c"].k:
        after = of(scope["f"], skip=lambda value: value is scope["c"])
        assert after.digest == before.digest and after.opaque == ()
        assert of(scope["f"]).opaque != ()


def test_cycles_and_depth_are_survived() -> None:
    scope = define(
        """
        class Node: pass
        ring = Node(); ring.next = Node(); ring.next.next = ring
        loop = [1]; loop.append({"loop": loop})
        chain = None
        for _ in range(100_000):
            node = Node(); node.next = chain; chain = node
        def f(x): return ring, loop
        def g(x): return chain
        """
    )
    assert of(scope["f"]).opaque == () and of(scope["f"]).digest == of(scope["f"]).digest
    assert any("nested too deeply" in line for line in of(scope["g"]).opaque)
    before = of(scope["f"]).digest
    scope["loop"][1]["more"] = 1
    assert of(scope["f"]).digest != before


def test_user_code_in_a_library_s_place_is_followed() -> None:
    import json.decoder

    own = define("def scan(self, s): return 2")["scan"]
    plain = of(lambda s: json.decoder.JSONDecoder().decode(s))
    original = json.decoder.JSONDecoder.decode
    json.decoder.JSONDecoder.decode = own
    try:
        patched = of(classes=[json.decoder.JSONDecoder])
    finally:
        json.decoder.JSONDecoder.decode = original
    assert any("user_module.scan" in label for label in patched.ingredients)
    assert plain.opaque == patched.opaque == ()


def test_sets_of_equal_names_have_one_digest() -> None:
    source = "S = {lambda x, k=i: x * k for i in %s}\ndef f(x): return S"
    digests = {of(define(source % order)["f"]).digest for order in ("range(5)", "range(4, -1, -1)")}
    assert len(digests) == 1
    assert of(define(source % "range(6)")["f"]).digest not in digests


def test_a_library_s_method_that_may_call_back_counts() -> None:
    class Decoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> Any:
            return super().raw_decode(s, idx)

        def save(self) -> None: ...

    labels = of(classes=[Decoder]).ingredients
    assert any(label.startswith("attribute raw_decode of class") for label in labels)
    assert not any("save" in label for label in labels)


@pytest.mark.torch
def test_torch_by_version_and_its_values_as_data() -> None:
    pytest.importorskip("torch.nn")
    import torch

    source = """
    import torch
    import torch.nn.functional as F
    from torch.nn.functional import max_pool2d, relu
    DTYPE, SIZE, DEVICE, LAYOUT = torch.float32, torch.Size([2]), torch.device("cpu"), torch.strided
    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x.sign() * 2
    @torch.no_grad()
    def helper(x): return x * 3
    class Block(torch.nn.Module):
        def forward(self, x):
            x = F.gelu(relu(max_pool2d(helper(Sign.apply(x)), 2)))
            return x.to(DTYPE), SIZE, DEVICE, LAYOUT, torch.cuda.is_available()
    """
    options = dict(
        is_tensor=lambda value: isinstance(value, torch.Tensor),
        is_layer=lambda value: isinstance(value, torch.nn.Module),
    )

    def probe(old: str = "", new: str = "") -> Fingerprint:
        scope = define(textwrap.dedent(source).replace(old, new) if old else source)
        return of(classes=[scope["Block"]], **options)

    base = probe()
    assert base.opaque == () and base.externals == ()
    assert base.ingredients["library torch"] == torch.__version__
    assert len(base.ingredients) < 60, sorted(base.ingredients)
    assert probe().digest == base.digest
    for old, new in {
        "torch.float32": "torch.float16", "Size([2])": "Size([3])", '"cpu"': '"meta"', "sign() * 2": "sign() * 3",
        "x * 3": "x * 4", "F.gelu": "F.relu", "torch.strided": "torch.sparse_coo",
    }.items():  # fmt: skip
        assert probe(old, new).digest != base.digest, old


@pytest.mark.torch
def test_of_a_bert_only_the_version_of_its_library_counts() -> None:
    pytest.importorskip("torch.nn")
    import torch

    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel(
        transformers.BertConfig(num_hidden_layers=12, hidden_size=48, num_attention_heads=4, intermediate_size=48)
    )
    found = fingerprint(
        [type(model).forward],
        [type(layer) for layer in model.modules()],
        is_tensor=lambda value: isinstance(value, torch.Tensor),
        is_layer=lambda value: isinstance(value, torch.nn.Module),
    )
    assert found.opaque == () and found.externals == ()
    assert found.ingredients["library transformers"] == f"transformers {transformers.__version__}"
