"""A schedule bound to an arena: arguments packed once, of which a call changes the caller's addresses alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from hybrid_infer.backends._cuda._driver import DriverError
from hybrid_infer.backends.native._device import Device
from hybrid_infer.backends.native._no_clusters import ClusterRefused, refuses
from hybrid_infer.backends.native._schedule import ARENA, CONSTANTS, FIRST, Call, Copy, Launch, Schedule

#: Finds an entry point, by module, name and the shared memory that it needs.
Find = Callable[[int, str, int], int]


class Bound:
    """Work on one arena. One thread at a time may run it, since its arguments are written in place."""

    def __init__(self, schedule: Schedule, device: Device, find: Find, arena: int, constants: int) -> None:
        self._device = device
        self._fixed = {ARENA: arena, CONSTANTS: constants}
        #: (arguments, place among them, base, offset) of what is the caller's.
        self._moving: list[tuple[ctypes.Array[ctypes.c_longlong], int, int, int]] = []
        self._steps = [self._step(each, find) for each in schedule.work]

    def run(self, bases: Sequence[int], stream: int) -> None:
        """Enqueue everything; `bases` are the addresses of inputs, then outputs.

        Raises DriverError, and ClusterRefused where the launch of a cluster is refused: nothing that was enqueued in
        front of it is of use then, nor in the way of another run.
        """
        for values, i, base, offset in self._moving:
            values[i] = bases[base - FIRST] + offset
        for step in self._steps:
            step(bases, stream)

    def _step(self, work: Launch | Copy | Call, find: Find) -> Callable[[Sequence[int], int], None]:
        device = self._device
        if isinstance(work, Copy):
            values = self._pack([work.source, work.target])

            def copy(_: Sequence[int], stream: int) -> None:
                device.copy(values[1], values[0], work.nbytes, stream)

            return copy
        if isinstance(work, Call):
            packed = self._pack(work.places)
            workspace = self._fixed[ARENA] + work.workspace

            def call(_: Sequence[int], stream: int) -> None:
                work.run(list(packed), workspace, stream)

            return call
        values = self._pack(work.places, (*work.numbers, *([] if work.cached is None else [int(work.cached)])))
        count, start = len(values), ctypes.addressof(values)
        # An int, where a kernel takes one, is the first half of its eight bytes: hosts of GPUs are little-endian.
        parameters = (ctypes.c_void_p * count)(*(start + 8 * i for i in range(count)))
        address = ctypes.addressof(parameters)
        entry, grid, block, shared, _, together = work.geometry
        function = find(work.module, entry, shared)

        def launch(_: Sequence[int], stream: int, keep: object = (values, parameters)) -> None:
            device.start(function, grid, block, shared, stream, address)

        if together == 1:
            return launch

        def cluster(bases: Sequence[int], stream: int) -> None:
            try:
                launch(bases, stream)
            except DriverError as error:
                if refuses(error):
                    raise ClusterRefused(str(error), together) from error
                raise

        return cluster

    def _pack(self, places: Sequence[tuple[int, int]], numbers: Sequence[int] = ()) -> ctypes.Array[ctypes.c_longlong]:
        values = (ctypes.c_longlong * (len(places) + len(numbers)))()
        for i, (base, offset) in enumerate(places):
            if base in self._fixed:
                values[i] = self._fixed[base] + offset
            else:
                self._moving.append((values, i, base, offset))
        for i, number in enumerate(numbers, len(places)):
            values[i] = number
        return values
