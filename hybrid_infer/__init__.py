"""Static-graph inference for one hot method of an eager program."""

__version__ = "0.1.0"
