"""What torch raises where a trace is asked for a tensor's value may not end in the program (see ``_swallowed``)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols
from torch.storage import UntypedStorage

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._swallowed import Errors
from hybrid_infer.frontends._torch_reasons import explained

_KINDS = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException, TraceError)
#: What torch says where there is no memory to look into, in exceptions of Python's own classes.
_NO_VALUES = re.compile(
    r"Cannot access data pointer of Tensor|is not supported for tensor subclasses|its data is not allocated yet"
    r"|FakeTensor\.__format__|Not available for 'meta' device"
)


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """While a method is traced on this thread; TraceError at the end if the method caught such an error."""
    errors = Errors("torch", "sympy", "einops")  # einops does without its cache where a size has no hash

    def passing(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as fault:
            if _NO_VALUES.search(str(fault)):
                errors.add(fault)
            raise

    def hashed(function: Callable[..., int], number: torch.SymInt) -> int:
        try:
            return function(number)
        except TypeError as fault:
            if free_unbacked_symbols(number):
                errors.add(fault)
            raise

    try:
        with contextlib.ExitStack() as stack:
            for kind in _KINDS:
                stack.enter_context(replaced(kind, "__init__", errors.made))
            # The one that sees every function of torch; another mode of ours would stop the tracer of branches.
            stack.enter_context(replaced(PreDispatchTorchFunctionMode, "__torch_function__", passing))
            stack.enter_context(replaced(UntypedStorage, "__getitem__", passing))
            stack.enter_context(replaced(torch.SymInt, "__hash__", hashed))
            yield
        fault = errors.caught()
        if isinstance(fault, TraceError):
            raise fault
        if fault is not None:
            raise TraceError(*explained(fault)) from fault
    finally:
        errors.clear()
