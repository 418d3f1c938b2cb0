"""The engines that may serve a call, what they are told, and under which names their plans are kept."""

from __future__ import annotations

import functools
from typing import Any

from hybrid_infer import _cinn, _keys, _rewriting, _trt
from hybrid_infer._errors import EngineError
from hybrid_infer._options import Options
from hybrid_infer._request import Request
from hybrid_infer._types import EngineOptions
from hybrid_infer.checks import _verified


def engines(request: Request) -> list[Any]:
    """Engines to try, in order. Raises EngineError where none can be had, with the reasons."""
    return engines_for(request.options, request.call.tensors[0].device if request.call.tensors else "cpu")


def engines_for(options: Options, device: str) -> list[Any]:
    """Those that may be tried under some options on a device."""
    from hybrid_infer import backends

    first = [backends.engine(_trt.NAME)] if _trt.wanted(options, device) else []
    first += [backends.engine(_cinn.NAME, device)] if _cinn.wanted(options, device) else []
    names = [n for n in options.backend if n in (*backends.ENGINES, *backends.BY_NAME)]
    found, reasons = [], []
    for each in [*first, *([backends.engine(n, device) for n in names] if names else backends.candidates(device))]:
        if each in found:
            continue
        missing = each.missing() or _trt.unfit(each, device)
        if missing:
            reasons.append(f"{each.name}: {missing}")
        else:
            found.append(each)
    if not found:
        raise EngineError("no engine is available", "; ".join(reasons) or f"none computes on {device}")
    precision = _rewriting.precision(options)
    # Where the library chooses: first the engines that the machine has kernels for.
    return found if names or first else sorted(found, key=lambda each: not each.native(precision))


def engine_options(request: Request, engine: Any = None, profile: Any = None) -> EngineOptions:
    """What an engine is told: widths and switches from the user's options and the framework's own settings."""
    if getattr(engine, "in_place", False):
        return _trt.engine_options(request, engine, profile)
    return EngineOptions(
        threads=request.frontend.threads(),
        optimise=request.options.switch_ir_optim,
        live=request.live,
        handover=request.options.core_handover,
        framework=request.frontend.name,
        device=request.options.device or "cpu",
        precision=_rewriting.precision(request.options),
    )


def plan_key(request: Request, engine: Any, profile: Any = None) -> str:
    """Names the plan of a version: the engine, what it is told, the passes that its graph went through, the machine."""
    return plan_name(request.options, engine, engine_options(request, engine, profile))


def plan_name(options: Options, engine: Any, told: EngineOptions) -> str:
    """The same of options and what the engine is told."""
    # A plan for a GPU goes with it from one host to the next.
    machine = "" if getattr(engine, "names_machine", False) else _machine()
    return _keys.digest([engine.plan_key(told), _rewriting.passes(options, engine), machine])


@functools.cache
def _machine() -> str:
    """The processor, as far as it decides which kernels an engine picks."""
    import platform

    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            lines = dict.fromkeys(line for line in file if line.startswith(("model name", "flags", "Features")))
        text = "".join(sorted(lines))
    except OSError:
        text = platform.processor()
    return _keys.digest([platform.machine(), text])


def scope(request: Request) -> str:
    """What a failure of all engines that may be tried is true of."""
    try:
        plans = [plan_key(request, engine) for engine in engines(request)]
    except EngineError as error:
        plans = [str(error)]
    return _verified.scope(plans, request)
