"""Hooks around the layers of a method: Python code that no static graph holds, and what to do about one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_CAPTURING = "transformers.utils.output_capturing"
#: Of transformers 5: a call with ``output_hidden_states=True`` leaves hooks that only such calls need, for good. The
#: mark goes with them, without which the next such call would install none and return nothing.
_TRANSFORMERS = (
    "transformers left it at a call with output_hidden_states=True or output_attentions=True. This removes what such "
    "calls leave: for m in model.modules(): [m._forward_hooks.pop(k) for k, h in [*m._forward_hooks.items()] if "
    f'h.__module__ == "{_CAPTURING}"]; vars(m).pop("_output_capturing_hooks_installed", None)'
)


class Hooked(NamedTuple):
    """A layer with hooks; ``name``: of the dict that holds them."""

    layer: Any
    name: str
    reason: str
    remedy: str

    def still(self) -> bool:
        return bool(getattr(self.layer, self.name))


def find(layers: Iterable[tuple[Sequence[str], Any]], names: Iterable[str]) -> Hooked | None:
    """The first hook of a layer below the roots: the method itself is called, and its caller runs the layer's own."""
    names = tuple(names)
    for path, layer in layers:
        for name in names if len(path) > 1 else ():
            if hooks := getattr(layer, name, None):
                left = any(getattr(hook, "__module__", "") == _CAPTURING for hook in hooks.values())
                remedy = _TRANSFORMERS if left else "Remove the hook, or decorate a method below it"
                return Hooked(layer, name, f"{'.'.join(path)} has a hook ({name})", remedy)
    return None
