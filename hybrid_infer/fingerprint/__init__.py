"""The code that a method reaches and the values that the code names, as digests that are the same in each process."""
