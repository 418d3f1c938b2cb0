"""On one NVIDIA GPU: eager, torch.compile in its best mode, and the native engine, in half precision.

Goals on an H100: torch.compile's speed at least, and three times eager at batch 1; memory below eager's peak; errors
against float64 within twice eager's own. The device, the driver and all versions are printed first.
"""

from __future__ import annotations

import copy
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from benchmarks import _measure

DTYPES = ("float16", "bfloat16")
BATCHES = (1, 8)
PACKAGES = (
    "hybrid_infer", "torch", "nvmath-python", "nvidia-cudnn-frontend", "nvidia-cuda-nvrtc", "cuda-bindings",
    "cupy-cuda13x", "cupy-cuda12x",
)  # fmt: skip

Run = Callable[[], Any]


def dit(batch: int, blocks: int = 28, width: int = 1152, heads: int = 16, tokens: int = 256) -> tuple[Any, list[Any]]:
    import torch

    from benchmarks._dit import DiTBlocks

    return DiTBlocks(blocks, width, heads), [torch.randn(batch, tokens, width), torch.randn(batch, width)]


def bert(batch: int, tokens: int) -> tuple[Any, list[Any]]:
    import torch
    from transformers import BertConfig, BertModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = BertModel(BertConfig(), add_pooling_layer=False)

        def forward(self, ids: Any) -> Any:
            return self.model(input_ids=ids).last_hidden_state

    return Encoder(), [torch.randint(0, 30000, (batch, tokens))]


def vit(batch: int) -> tuple[Any, list[Any]]:
    import torch
    from transformers import ViTConfig, ViTModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = ViTModel(ViTConfig(), add_pooling_layer=False)

        def forward(self, pixels: Any) -> Any:
            return self.model(pixel_values=pixels).last_hidden_state

    return Encoder(), [torch.randn(batch, 3, 224, 224)]


def resnet50(batch: int) -> tuple[Any, list[Any]]:
    import torch
    from transformers import ResNetConfig, ResNetModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = ResNetModel(ResNetConfig())

        def forward(self, pixels: Any) -> Any:
            return self.model(pixel_values=pixels).last_hidden_state

    return Encoder(), [torch.randn(batch, 3, 224, 224)]


def unet_block(batch: int, channels: int = 640, size: int = 32) -> tuple[Any, list[Any]]:
    """A residual block of a latent diffusion UNet with its attention."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(32, channels) for _ in range(3))
            self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
            self.time, self.qkv = nn.Linear(1280, channels), nn.Linear(channels, 3 * channels)
            self.out = nn.Linear(channels, channels)

        def forward(self, x: Any, t: Any) -> Any:
            silu = nn.functional.silu
            h = self.conv1(silu(self.norm1(x))) + self.time(silu(t))[:, :, None, None]
            x = x + self.conv2(silu(self.norm2(h)))
            b, c, high, wide = x.shape
            tokens = self.norm3(x).reshape(b, c, -1).transpose(1, 2)
            q, k, v = self.qkv(tokens).reshape(b, high * wide, 3, 8, c // 8).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, high * wide, c)
            return x + self.out(mixed).transpose(1, 2).reshape(b, c, high, wide)

    return Block(), [torch.randn(batch, channels, size, size), torch.randn(batch, 1280)]


MODELS: dict[str, Callable[[int], tuple[Any, list[Any]]]] = {
    "DiT blocks 28x1152, 256 tokens": dit,
    "BERT-base, 128 tokens": lambda batch: bert(batch, 128),
    "BERT-base, 512 tokens": lambda batch: bert(batch, 512),
    "ViT-B": vit,
    "ResNet-50": resnet50,
    "UNet block 640x32x32": unet_block,
}


def missing() -> str:
    """Why nothing can be measured here; empty if it can."""
    from hybrid_infer.backends.native import _driver

    if reason := _driver.missing():
        return reason
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return "" if torch.cuda.is_available() else "PyTorch was built without CUDA, or finds no GPU"


def machine() -> dict[str, Any]:
    """Device, driver and versions."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        told = [f"nvidia-smi says nothing: {error}"]
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": f"{properties.name}, sm_{properties.major}{properties.minor}, "
                  f"{properties.multi_processor_count} multiprocessors",
        "driver": told, "cuda": torch.version.cuda, "versions": versions,
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def times(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each run by CUDA events, in turn."""
    import torch

    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        for _ in range(5):
            run()
    for _ in range(rounds):
        for name, run in runs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            run()
            start.record()
            for _ in range(20):
                run()
            end.record()
            end.synchronize()
            found[name].append(start.elapsed_time(end) / 20)
    return found


def peak(run: Run) -> int:
    """Bytes that torch's allocator has given out at most during one run."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated())


def measure(name: str, dtype: str, batch: int, rounds: int) -> dict[str, Any]:
    import torch

    import hybrid_infer

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    layer, arguments = MODELS[name](batch)
    exact = copy.deepcopy(layer).eval().double()

    def on(tensor: Any, wanted: Any) -> Any:
        return tensor.cuda().to(wanted) if tensor.is_floating_point() else tensor.cuda()

    layer = layer.eval().cuda().to(kind)
    given = [on(each, kind) for each in arguments]
    ours = hybrid_infer.inference(copy.deepcopy(layer), backend="native", verify="off")
    best = torch.compile(copy.deepcopy(layer), mode="max-autotune")
    runs: dict[str, Run] = {
        "eager": lambda: layer(*given), "torch.compile": lambda: best(*given), "native": lambda: ours(*given)
    }  # fmt: skip
    with torch.inference_mode():
        build = {}
        for which, run in runs.items():
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            build[which] = time.perf_counter() - start
        milliseconds = times(runs, rounds)
        memory = {which: peak(run) for which, run in runs.items()}
        truth = exact.cuda()(*(on(each.float().to(kind), torch.float64) for each in arguments))
        errors = {which: float((run().double() - truth).abs().max()) for which, run in runs.items()}
    stats = hybrid_infer.stats()
    return {"model": name, "dtype": dtype, "batch": batch, "build_s": build, "ms": milliseconds, "peak": memory,
            "error": errors, "served": str(stats)}  # fmt: skip


def show(results: Sequence[dict[str, Any]]) -> str:
    rows = []
    for each in results:
        median = {which: statistics.median(figures) for which, figures in each["ms"].items()}
        rows.append((
            f"{each['model']}, {each['dtype']}, batch {each['batch']}",
            *(f"{median[which]:.3f}" for which in median),
            f"{median['eager'] / median['native']:.2f}", f"{median['torch.compile'] / median['native']:.2f}",
            f"{each['peak']['native'] / each['peak']['eager']:.2f}",
            f"{each['error']['native'] / max(each['error']['eager'], 1e-12):.2f}", f"{each['build_s']['native']:.1f}",
        ))  # fmt: skip
    head = ("ms, median", "eager", "torch.compile", "native", "over eager", "over torch.compile", "memory to eager's",
            "error to eager's", "first call, s")  # fmt: skip
    return _measure.table("On a GPU", head, rows)


def main(rounds: int, models: Sequence[str] = tuple(MODELS)) -> str:
    told = machine()
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    print(f"{told['device']}; driver {'; '.join(told['driver'])}; CUDA {told['cuda']}; {told['date']}\n{versions}\n")
    with _measure.store():
        results = [measure(name, dtype, batch, rounds) for name in models for dtype in DTYPES for batch in BATCHES]
    _measure.save("gpu", {"gpu": told, "results": results})
    return show(results)


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("models", nargs="*", metavar="model", help=f"which of {', '.join(MODELS)} (default: all)")
    asked = parser.parse_args()
    if unknown := set(asked.models) - set(MODELS):
        parser.error(f"no model is called {', '.join(sorted(unknown))}")
    if why := missing():
        print(f"nothing was measured: {why}")
        sys.exit(0)
    print(main(asked.rounds, asked.models or tuple(MODELS)))
