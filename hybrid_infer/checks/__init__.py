"""Does an engine give what the eager method gives? Comparison, trials in processes of their own, what plans proved."""
