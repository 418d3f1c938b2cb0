"""A distributed job's default process group, which modules that torch imports for a trace would keep for good.

The functions of ``torch.distributed.nn.functional`` take the default group of the moment at which they are defined for
the default of an argument. Imported after ``init_process_group``, as for a first trace, they keep that group and its
threads alive past ``destroy_process_group``, and such threads end a process by SIGABRT now and then ("terminate called
without an active exception") when the interpreter goes. Where no group was there yet, the default is None, which stands
for the default group of each call.
"""

from __future__ import annotations

import importlib
import sys
import types

import torch

_MODULE = "torch.distributed.nn.functional"


def import_without_keeping() -> None:
    """Import these functions now, without a group in their defaults, unless the program has imported them itself."""
    job = torch.distributed
    if _MODULE in sys.modules or not job.is_available() or not job.is_initialized():
        return
    functions, group = importlib.import_module(_MODULE), job.group.WORLD
    for function in vars(functions).values():
        if isinstance(function, types.FunctionType) and function.__defaults__:
            function.__defaults__ = tuple(None if each is group else each for each in function.__defaults__)
