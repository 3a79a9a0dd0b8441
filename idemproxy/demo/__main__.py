"""`python -m idemproxy.demo`: the sample upstream."""

from __future__ import annotations

import argparse
import sys

from idemproxy.demo.command import ABOUT, add_arguments, main

parser = argparse.ArgumentParser(prog="python -m idemproxy.demo", description=ABOUT)
add_arguments(parser)
sys.exit(main(parser.parse_args()))
