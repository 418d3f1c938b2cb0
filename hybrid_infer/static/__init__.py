"""Static models as files: ``save()`` and ``load()``, what a file holds, and calls without the model's Python code."""
