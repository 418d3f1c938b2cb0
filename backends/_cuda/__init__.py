"""What engines on NVIDIA GPUs have in common: the driver, memory from the framework's pool, captured graphs."""
