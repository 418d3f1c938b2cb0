"""A method traced on a twin of what it works on, so that the program meets no tracer; what it did to the twin."""
