"""Measurements of the library against the bare engine and its peers: ratios of medians, taken in turn in one run."""
