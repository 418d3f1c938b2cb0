"""The modes that a call of torch is made in: which of them a key holds, and in which a call runs as it is.

A mode is what holds for all that a thread does until it is left: a default dtype or device, autocast, the recording of
gradients, a tracer or transform that is to see each operation. Answered at every call, so the functions are bound once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import torch


def _later(module: Any, name: str) -> Callable[..., Any]:
    """A function that releases lack which capture nothing (see `_releases`), so that no answer of it counts there."""
    return getattr(module, name, lambda *given: None)


def ambient() -> Callable[[], Hashable]:
    """What reads the modes that change what operations compute: the default dtype and autocast."""
    default, enabled, dtype = torch.get_default_dtype, torch._C._is_any_autocast_enabled, torch.get_autocast_dtype
    active = torch.is_autocast_enabled

    def read() -> Hashable:
        if enabled():
            cpu, gpu = _autocast("CPU", active("cpu"), dtype("cpu")), _autocast("GPU", active("cuda"), dtype("cuda"))
            return default(), cpu, gpu
        return default()

    return read


@cache
def _autocast(device: str, active: bool, dtype: torch.dtype) -> str:
    """The mode of a kind of device in the words that `explain()` has for it; the type counts where it is off too."""
    return f"autocast on the {device} {'' if active else 'off, '}to {dtype}"


def transparent() -> Callable[[], bool]:
    """What tells whether something is to see each operation, a default device among it."""
    return _stepping_aside(torch._C._len_torch_function_stack)


def default_device() -> Callable[[], Hashable]:
    """What reads the device that new tensors are made on, None where none is set or more than devices is."""
    from torch.utils._device import DeviceContext

    count, at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
    others = _stepping_aside(lambda: 0)

    def read() -> Hashable:
        if not count():
            return None
        modes = [at(i) for i in range(count())]
        if any(type(mode) is not DeviceContext for mode in modes) or others():
            return None
        device = modes[-1].device  # the innermost is asked first
        if device.type == "cuda" and device.index is None:
            return f"{device}:{torch.cuda.current_device()}"
        return str(device)

    return read


def aside() -> str:
    """Why calls are left to eager for a mode that the program has set, in a user's words; "" where a tracer works."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return ""
    count, at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
    modes = [(type(at(i)).__name__, "function") for i in range(count())]
    # Those of tracers and of autocast-like machinery are torch's own: where one of them is on, it is at work.
    for i in range(torch._C._len_torch_dispatch_stack()):
        mode = torch._C._get_dispatch_stack_at(i)
        if mode.is_infra_mode():
            return ""
        modes.append((type(mode).__name__, "dispatch"))
    if modes:
        name, kind = modes[-1]
        return f"the {kind} mode {name} is on, which is to see every operation"
    if _later(torch.nn.modules.module, "_has_any_global_hook")():
        return "hooks for every module are registered, which are to see those inside"
    if torch.nn.utils.parametrize._cache_enabled:
        return "torch.nn.utils.parametrize.cached() is on, in which weights stay as they were first computed"
    return ""


def modes(device: Callable[[], Hashable]) -> Callable[[], Callable[[], AbstractContextManager[Any]]]:
    """What keeps the modes of now, the default ``device()`` among them: it gives what enters them again."""
    gradients, inference = torch.is_grad_enabled, torch.is_inference_mode_enabled

    def keep() -> Callable[[], AbstractContextManager[Any]]:
        autocast = [] if not torch._C._is_any_autocast_enabled() else [
            (kind, torch.get_autocast_dtype(kind))
            for kind in ("cpu", "cuda")
            if torch.is_autocast_enabled(kind)
        ]
        return partial(_entered, gradients(), inference(), autocast, device())

    return keep


def _stepping_aside(functions: Callable[[], int]) -> Callable[[], bool]:
    modes = torch._C._len_torch_dispatch_stack
    transforms, tracing = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
    compiling, hooked = torch.compiler.is_compiling, _later(torch.nn.modules.module, "_has_any_global_hook")
    duals, computed = torch.autograd.forward_ad, torch.nn.utils.parametrize

    def step_aside() -> bool:
        return bool(
            compiling() or modes() or functions() or transforms() is not None or tracing() is not None or hooked()
            or duals._current_level >= 0 or computed._cache_enabled
        )

    return step_aside


@contextmanager
def _entered(gradients: bool, inference: bool, autocast: Sequence[tuple[str, Any]], device: Any) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(inference))
        stack.enter_context(torch.set_grad_enabled(gradients))
        for kind in {"cpu", "cuda"}.difference(kind for kind, _ in autocast):
            if torch.is_autocast_enabled(kind):  # where the modes are entered, as in a backward pass under autocast
                stack.enter_context(torch.autocast(kind, enabled=False))
        for kind, dtype in autocast:
            stack.enter_context(torch.autocast(kind, dtype))
        if device is not None:
            stack.enter_context(torch.device(device))
        yield
