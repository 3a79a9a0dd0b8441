"""`python -m bench.soak`."""

from __future__ import annotations

import sys

from bench.soak.command import main

sys.exit(main())
