"""The tests of a file on one worker, and a run that goes on, and ends, where a worker has died.

What `--dist=loadfile` of pytest-xdist 3.8 does then hangs: it hands what the dead worker had finished to the others
again, as units with no test in them, after which they wait for ever; a new worker whose first unit has a single test
waits for a second one; and the test that killed the first worker kills the next (pytest-xdist's issues 1323, 1327 and
1378; corrected there after 3.8).
"""

from __future__ import annotations

import contextlib

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class FilesOnWorkers(LoadFileScheduling):
    """Of a dead worker's files, the tests that have not begun go back into the queue."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a worker out; the test that it died of, where it did, is reported as failed and not run again."""
        files = self.assigned_work[node]
        left = {file: {test: False for test, done in tests.items() if not done} for file, tests in files.items()}
        left = {file: tests for file, tests in left.items() if tests}
        self.assigned_work[node] = {}
        super().remove_node(node)
        if not left:
            return None
        crashed = next(test for tests in left.values() for test in tests)
        del left[self._split_scope(crashed)][crashed]
        self.workqueue.update({file: tests for file, tests in left.items() if tests})
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def schedule(self) -> None:
        """Hand out files; a worker needs two tests before it runs the first one."""
        super().schedule()
        for node in self.nodes:
            while self.workqueue and not node.shutting_down and self._waits(node):
                self._assign_work_unit(node)
            self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        """None for a worker that is still looking for the tests; it comes back when it knows them."""
        if node in self.registered_collections:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """To a worker that has just died as well: its end is still to be told, and puts the file back."""
        with contextlib.suppress(OSError):
            super()._assign_work_unit(node)

    def _waits(self, node: WorkerController) -> bool:
        return node in self.registered_collections and self._pending_of(self.assigned_work[node]) < 2
