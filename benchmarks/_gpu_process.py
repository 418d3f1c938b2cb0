"""One peer in a process of its own: seconds of its first call above loading the framework, and the peak of its memory.

The layer is on the GPU, and the framework has computed something there, before the clock starts.
"""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks import _gpu_turns
from benchmarks._gpu_models import MODELS, drawn, of_a_row
from benchmarks._gpu_served import UNSERVED, served

FORMS = ("eager", "native", "tensorrt")


def measure(name: str, dtype: str, batch: int, form: str, device: str = "cuda") -> dict[str, Any]:
    """``first_s``, ``peak``: bytes that torch's allocator held at most, and who answered: see `_gpu_served.served`.

    Weights are part of the peak.
    """
    import torch

    kind = getattr(torch, dtype)
    layer = drawn(name, device).to(kind)
    given = [each.to(device) for each in MODELS[name].arguments(batch)]
    given = [each.to(kind) if each.is_floating_point() else each for each in given]
    ones = torch.ones(64, 64, device=device, dtype=kind)
    (ones @ ones).sum().item()
    torch.cuda.reset_peak_memory_stats()
    answered = UNSERVED
    with torch.inference_mode():
        start = time.perf_counter()
        call: Any = layer
        if form != "eager":
            import hybrid_infer

            # Memory is measured as it is needed, not as it is reserved.
            options: dict[str, Any] = {"with_trt": True} if form == "tensorrt" else {"backend": "native"}
            call = hybrid_infer.inference(layer, verify="off", memory_pool_init_size_mb=0, **options)
        call(*given)
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        for _ in range(4):  # captured and replayed
            call(*given)
        torch.cuda.synchronize()
        if form != "eager":
            answered = served(call)
    return {"first_s": first, "peak": int(torch.cuda.max_memory_allocated()), **answered}


if __name__ == "__main__":
    parser = of_a_row(__doc__ or "")
    parser.add_argument("--form", choices=FORMS, required=True)
    asked = parser.parse_args()
    with _gpu_turns.together():
        print(json.dumps(measure(asked.model, asked.dtype, asked.batch, asked.form)))
