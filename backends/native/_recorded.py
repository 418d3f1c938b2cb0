"""A captured graph that is let go without waiting for the GPU.

A program may be closed, or collected, at any moment. Nothing has to be waited for: the driver frees a graph that still
runs once it is through ("CUDA Driver API", cuGraphExecDestroy), and its buffers go back to the pool of the stream that
it ran on, which hands them out behind it.
"""

from __future__ import annotations

from hybrid_infer.backends._cuda._graphs import Captured


class Recorded(Captured):
    """See `hybrid_infer.backends._cuda._graphs.Captured`; it runs on the stream that its buffers were asked for on."""

    def _enqueued(self, stream: int) -> None: ...

    def _settle(self) -> None: ...
