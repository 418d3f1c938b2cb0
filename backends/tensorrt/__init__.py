"""TensorRT: plans for ranges of sizes, built without weights, refitted with the live ones, run on the caller's stream.

What it decides is in plain functions (`_profiles`, `_shapes`, `_keys`, `_precision`, `_model`, `_refit`, `_nodes`);
what calls TensorRT is thin (`_logger`, `_build`, `_load`, `_run`), and says of each object of TensorRT which class it
is, since the tests hold every name used there against the real bindings.
"""
