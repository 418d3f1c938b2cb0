"""Child process that runs a static model of Paddle in Paddle itself, for a comparison with what it was converted to.

Called as ``python -I _paddle_reference.py REQUEST``: a JSON file with ``program`` and ``weights`` (paths), ``given``
(paths of .npz files with the inputs by name, tried in turn), ``found`` (path out: the outputs in order, as an .npz
file) and ``path`` (the parent's sys.path). It prints the number of the inputs that it could run with; exit code 3:
there were none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(path: str) -> int:
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.path[:] = request["path"]
    import numpy as np
    from paddle import inference

    for number, given in enumerate(request["given"]):
        with np.load(given) as held:
            arrays = {name: held[name] for name in held.files}
        try:
            config = inference.Config(request["program"], request["weights"])
            config.disable_glog_info()
            config.switch_ir_optim(False)
            predictor = inference.create_predictor(config)
            for name in predictor.get_input_names():
                predictor.get_input_handle(name).copy_from_cpu(arrays[name])
            predictor.run()
            found = [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]
        except Exception as fault:
            sys.stderr.write(f"[{number}] {type(fault).__name__}: {fault}\n")
            continue
        np.savez(request["found"], *found)
        sys.stdout.write(f"\nran {number}\n")
        return 0
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
