"""The type of a decorator with options, for checkers and editors: what it is given comes back as what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar, overload

Given = TypeVar("Given")
_Options = ParamSpec("_Options")


class Decorator(Protocol[_Options]):
    """A function, method or layer in front of its options gives the same; options alone give what decorates.

    The options are named once, by the function itself; its own overloads would name each of them twice more.
    """

    @overload
    def __call__(
        self, function: None = None, *args: _Options.args, **options: _Options.kwargs
    ) -> Callable[[Given], Given]: ...

    @overload
    def __call__(self, function: Given, *args: _Options.args, **options: _Options.kwargs) -> Given: ...
