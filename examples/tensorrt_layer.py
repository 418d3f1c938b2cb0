"""A whole layer served by TensorRT: one argument, ``with_trt=True``.

Needs PyTorch, and for TensorRT an NVIDIA GPU and ``pip install 'hybrid_infer[tensorrt]'``. Without either it says what
is missing, and the next engine serves the layer.
"""

from __future__ import annotations

from typing import Any

import _table

options = _table.arguments(
    __doc__, lambda parser: parser.add_argument("--width", type=int, default=128, help="of the layer")
)

import torch  # noqa: E402

from hybrid_infer import explain, inference  # noqa: E402
from hybrid_infer.backends import engine  # noqa: E402


def make(width: int, device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    return layer.eval().to(device)


def served_by(layer: Any) -> str:
    found = [version["served_by"] for method in explain(layer).to_dict()["methods"] for version in method["versions"]]
    return ", ".join(sorted({name for names in found for name in names})) or "eager"


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    eager = make(options.width, device)
    layer = inference(make(options.width, device), with_trt=True)

    with torch.inference_mode():
        for tokens in (16, 16, 24, 32):
            x = torch.randn(2, tokens, options.width, device=device)
            expected, found = eager(x), layer(x)
            difference = float((expected - found).abs().max())
            if not difference <= 1e-3 * float(expected.abs().max()):
                raise SystemExit(f"{tokens} tokens: the wrapped layer differs from the eager one by {difference:.1e}")
            print(f"{tokens:3} tokens on {device}: largest difference from eager {difference:.1e}")

    reason = engine("tensorrt").missing()
    if not reason and device == "cpu":
        reason = "the layer is on the CPU"
    if reason:
        print(f"TensorRT did not serve the layer: {reason}")
    print(f"served by: {served_by(layer)}")


if __name__ == "__main__":
    main()
