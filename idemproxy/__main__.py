"""`python -m idemproxy` is the command `idemproxy`."""

from __future__ import annotations

import sys

from idemproxy.cli import main

sys.exit(main())
