"""What the user is told: ``explain()``, ``suggest()``, the profile, ``doctor``, and the tables of the command line."""
