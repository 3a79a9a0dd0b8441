"""`python -m bench.growth`."""

from __future__ import annotations

import sys

from bench.growth.command import main

sys.exit(main())
