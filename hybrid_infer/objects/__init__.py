"""Single objects: what they hold and where, what they are called, whose they are, and the way back from a change."""
