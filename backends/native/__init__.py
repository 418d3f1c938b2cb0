"""Our own executor: a planner from ONNX to fused steps, an interpreter of plans on NumPy, and generated CUDA kernels.

`engine` is the engine; the other modules are its parts, one idea each:

- ``_size``, ``_plan``: symbolic sizes, and plans as plain data;
- ``_read``, ``_infer*``: ONNX to a plan whose values have types and shapes;
- ``_fold``, ``_views``, ``_duplicates``, ``_fuse_*``, ``_attention_*``, ``_spell_*``, ``_layout``,
  ``_row_layout``, ``_in_place``: the passes, put in order by ``_passes``;
- ``_window``: where operands lie in other arrays, so that what turns, cuts and regroups copies nothing;
- ``_memory``: one arena for all values in between;
- ``_numpy_*``, ``_interpret``: the reference interpreter;
- ``_kernels``, ``_cuda_*``, ``_nvrtc``, ``_build``: CUDA C for the steps, and cubins of it, kept with the plan;
- ``gpu``: the engine on a GPU. ``_device`` is what it asks of one, ``_driver`` gives it; ``_schedule`` (with
  ``_geometry``) is a plan for the sizes of one call, ``_bound`` that on an ``_arena``, beside its ``_weights``;
  ``_gpu_program`` is what is called, and ``_keys`` what a call is known by;
- ``_cublaslt``, ``_cudnn``, opened by ``_libraries``: what computes steps in the place of our own kernels.
"""
