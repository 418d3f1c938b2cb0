"""What the options for TensorRT mean to the core: when it is tried, what it is told, and what the user is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hybrid_infer import _ranges, _rewriting
from hybrid_infer._demanded import Demand, say_absent, say_passed_over
from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions

if TYPE_CHECKING:
    from hybrid_infer._family import Held
    from hybrid_infer._options import Options
    from hybrid_infer._request import Request

NAME = "tensorrt"

_DEMAND = Demand("with_trt", "TensorRT")

#: The kinds of devices that it computes on, in the names of the frameworks.
DEVICES = ("cuda", "gpu")
_TIMINGS = "tensorrt-timing.cache"
_KERNELS = "native-kernels.cache"
_PRODUCTS = "native-products.cache"
_CUDNN = "native-cudnn.cache"


def _engine() -> Any:
    from hybrid_infer import backends

    return backends.engine(NAME)


def asked(options: Options) -> bool:
    """Has the user asked for TensorRT, or for a record of sizes for it, on a machine where that changes anything?"""
    if not options.with_trt and NAME not in options.backend:
        return False
    return options.collect_shape or not _engine().missing()


def names_the_order(options: Options, device: str) -> bool:
    """Is TensorRT the first engine for tensors there, without a measurement? Else the others are measured."""
    if not options.with_trt or options.collect_shape:
        return False
    return not (unfit(_engine(), device) or _engine().missing())


def wanted(options: Options, device: str) -> bool:
    """Is TensorRT to be tried before the other engines? If not, the user is told why, once."""
    if not options.with_trt or options.collect_shape:
        return False
    reason = _engine().missing() or unfit(_engine(), device)
    if reason:
        say_absent(_DEMAND, reason)
    return not reason


def static(options: Options) -> Options:
    """The options of a static model that ``load()`` gives: where there is no TensorRT, the user is told now, once."""
    if not options.with_trt or not (reason := _engine().missing()):
        return options
    say_absent(_DEMAND, reason)
    return replace(options, with_trt=False)


def unfit(engine: Any, device: str) -> str:
    """Why an engine that works on a GPU's memory cannot serve calls whose tensors are on `device`."""
    if not getattr(engine, "in_place", False) or device.partition(":")[0] in DEVICES:
        return ""
    return f"the tensors of the call are on the device {device!r}: move them, and the layer, to the GPU"


def passed_over(request: Request, held: Held, engine: Any, reason: str) -> None:
    """It was tried first and cannot serve a version: said once, and kept for ``explain()``."""
    if engine.name == NAME:
        reason = reason.removeprefix(f"{NAME}: ")
        held.ledger.unfit[NAME] = reason
        say_passed_over(_DEMAND, request.name, reason)


def engine_options(request: Request, engine: Any, profile: Any) -> EngineOptions:
    """What an engine is told that works on the framework's tensors."""
    asked, tensors = request.options, request.call.tensors
    device = tensors[0].device if tensors else asked.device or "cpu"
    extra: dict[str, Any] = {
        "memory_pool_init_size_mb": asked.memory_pool_init_size_mb,
        "timing": _Shelf(request.store, _TIMINGS),
        "kernels": _Shelf(request.store, _KERNELS),
        "products": _Shelf(request.store, _PRODUCTS),
        "cudnn": _Shelf(request.store, _CUDNN),
        "debug": asked.switch_ir_debug,
        "progress": _going_on,
        "sealed": request.sealed,
        "tf32": request.tf32,
    }
    if profile is not None:
        extra["profile"] = profile
    return EngineOptions(
        threads=request.frontend.threads(),
        # A demand for the fusing compiler goes before the wish that nothing be optimised.
        optimise=asked.switch_ir_optim or (asked.enable_cinn and getattr(engine, "name", "") == "native"),
        live=request.live,
        framework=request.frontend.name,
        device=device,
        precision=_rewriting.precision(asked, engine.name),
        memory=request.frontend.memory(device),
        extra=extra,
    )


def _going_on(part: float) -> bool:
    """A build stops where the program ends."""
    return not stopping()


def telling(options: EngineOptions, tell: Callable[[float], None]) -> EngineOptions:
    """The same for a build whose progress is shown."""
    if "progress" not in options.extra:
        return options

    def report(part: float) -> bool:
        tell(part)
        return not stopping()

    return replace(options, extra={**options.extra, "progress": report})


def stopping() -> bool:
    """Is the program ending, so that a build that stops says nothing about the engine?"""
    from hybrid_infer import _background

    return _background.stopping()


class _Shelf(NamedTuple):
    """A file of an engine's own, shared by all builds of a store."""

    store: Any
    name: str

    def read(self) -> bytes:
        return bytes(self.store.shared(self.name))

    def update(self, merge: Callable[[bytes], bytes]) -> None:
        self.store.update_shared(self.name, merge)


# Sizes


def note(request: Request, held: Held) -> None:
    """Record what a call is of."""
    if asked(request.options):
        _ranges.note(request, held, _engine())


def slot(request: Request, held: Held, engines: Callable[[Request], list[Any]]) -> str:
    """Under what name, beside the engine's, the route of a version is kept that serves such a call."""
    if not asked(request.options):
        return ""
    try:
        return _ranges.slot(request, held, engines(request))
    except EngineError:
        return ""


def bound(state: Any, held: Held, slot: str, drop: Callable[[Any, Any], None]) -> None:
    """A route was bound under `slot`: let go of those that it makes superfluous.

    Of plans for exact sizes as many are kept loaded as a method may have static models.
    """
    mine = {place: route for (owner, place), route in list(state.routes.items()) if owner == id(held) and "@" in place}
    exact = [route for place, route in mine.items() if _ranges.MEANWHILE not in place]
    gone = exact[: max(0, len(exact) - state.method.options.max_versions)]
    if not slot:
        gone += [route for place, route in mine.items() if _ranges.MEANWHILE in place]
    for route in gone:
        drop(state, route)


def published(request: Request, held: Held) -> None:
    """A version has come to have an entry: what is known of its sizes goes beside it."""
    if asked(request.options):
        _ranges.keep(request, held, _engine())
