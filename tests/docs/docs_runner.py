"""Run the blocks of one session as one program: ``python docs_runner.py session.py blocks.json``.

A child process of the test. The blocks are exec'ed in the namespace of ``__main__``, each at the lines that it has in
its page, so that classes have sources and messages name a line. What each prints goes to standard output as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import traceback
import types
from pathlib import Path


def main(source: str, listed: str) -> int:
    module = types.ModuleType("__main__")
    module.__file__ = source
    sys.modules["__main__"] = module
    sys.path[0] = str(Path(source).parent)
    sys.argv[:] = [source]
    results, out = [], sys.stdout
    for line, text in json.loads(Path(listed).read_text(encoding="utf-8")):
        said = io.StringIO()
        logging.lastResort = handler = logging.StreamHandler(said)
        handler.setLevel(logging.WARNING)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                exec(compile("\n" * (line - 1) + text, source, "exec"), module.__dict__)
            except BaseException:
                results.append({"line": line, "fault": traceback.format_exc()})
                break
        results.append({"line": line, "said": said.getvalue()})
    json.dump(results, out)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
