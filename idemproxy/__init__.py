"""An idempotency proxy: one write, one effect, and the same answer to every retry."""

__version__ = "0.1.0"
