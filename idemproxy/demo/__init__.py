"""What stands in front of the proxy and behind it, to see it work: an agent that can be killed, and a sample upstream.

That has no idempotency; it keeps a ledger of its effects, and can be told to be slow or to fail. The README and the tests use
both; the proxy itself never imports them.
"""
