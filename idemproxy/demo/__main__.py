"""`python -m idemproxy.demo`."""

from __future__ import annotations

import argparse
import sys

from idemproxy.demo.command import add_arguments, main

parser = argparse.ArgumentParser(prog="python -m idemproxy.demo", description="A payments API without idempotency.")
add_arguments(parser)
sys.exit(main(parser.parse_args()))
