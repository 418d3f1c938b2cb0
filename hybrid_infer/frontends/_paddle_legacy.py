"""Child process that turns a static model in Paddle's old form (.pdmodel) into ONNX.

Reading it takes the whole framework, which must be put into the mode of that form for the time; the parent's is not.
Called as ``_paddle_convert.py`` is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(path: str) -> None:
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.path[:] = request["path"]
    import paddle2onnx

    paddle2onnx.export(
        request["program"], request["weights"], request["onnx"], opset_version=request["opset"], optimize_tool=None
    )


if __name__ == "__main__":
    main(sys.argv[1])
