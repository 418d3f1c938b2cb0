"""How far a build has come, and the wish to stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hybrid_infer import _fork_safe

if TYPE_CHECKING:
    import tensorrt as trt

#: Is told the part of the work that is done, from 0 to 1; returns False where the build is to stop.
Report = Callable[[float], bool]


class Progress:
    """Phases of a build, each a part of a step of the phase around it. Told from any thread of TensorRT's."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lock = _fork_safe.Lock()
        #: By name: the phase around it, its steps, and how many of these are done.
        self._phases: dict[str, tuple[str | None, int, int]] = {}
        self._most = 0.0
        self.cancelled = False

    def start(self, phase: str, parent: str | None, steps: int) -> None:
        with self._lock:
            self._phases[phase] = parent, max(steps, 1), 0

    def step(self, phase: str, step: int) -> bool:
        """Step number `step`, counted from 0, of a phase is done. False: stop."""
        with self._lock:
            if phase in self._phases:
                parent, steps, _ = self._phases[phase]
                self._phases[phase] = parent, steps, min(step + 1, steps)
            self._most = max(self._most, self._done())
            if not self.cancelled and not self._report(self._most):
                self.cancelled = True
            return not self.cancelled

    def finish(self, phase: str) -> None:
        with self._lock:
            self._phases.pop(phase, None)

    def _done(self) -> float:
        """The part of the outermost phase that is done. Phases that run side by side count as the furthest of them."""
        children: dict[str | None, list[str]] = {}
        for name, (parent, _, _) in self._phases.items():
            children.setdefault(parent if parent in self._phases else None, []).append(name)

        def part(name: str) -> float:
            _, steps, done = self._phases[name]
            inner = max((part(each) for each in children.get(name, [])), default=0.0)
            return min((done + min(inner, 1.0)) / steps, 1.0)

        return max((part(name) for name in children.get(None, [])), default=0.0)


def monitor(trt: Any, progress: Progress) -> trt.IProgressMonitor:
    """What TensorRT tells of a build; it has to outlive the build."""

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            progress.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return progress.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            progress.finish(phase_name)

    return Monitor()
