"""``inference`` where programs written for ``paddle.incubate.jit`` look for it: change the import, keep the program."""

from hybrid_infer._api import inference, is_inference_mode

__all__ = ["inference", "is_inference_mode"]
