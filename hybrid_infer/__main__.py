"""``python -m hybrid_infer`` is ``hybrid-infer``."""

import sys

from hybrid_infer.cli import main

sys.exit(main())
