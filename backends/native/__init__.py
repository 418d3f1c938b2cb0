"""Our own executor: a planner from ONNX to fused steps, an interpreter of plans on NumPy, and generated CUDA kernels.

`engine` is the engine; the other modules are its parts, one idea each:

- ``_size``, ``_plan``: symbolic sizes, and plans as plain data;
- ``_read``, ``_infer*``: ONNX to a plan whose values have types and shapes;
- ``_fold``, ``_views``, ``_duplicates``, ``_fuse_*``, ``_spell_batchnorm``: the passes, put in order by ``_passes``;
- ``_memory``: one arena for all values in between;
- ``_numpy_*``, ``_interpret``: the reference interpreter;
- ``_attention_layout``: attention through strides instead of copies;
- ``_kernels``, ``_cuda_*``, ``_nvrtc``: CUDA C for the steps, and cubins of it. Nothing launches them yet.
"""
