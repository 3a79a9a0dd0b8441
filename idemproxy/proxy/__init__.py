"""A request's way through the house: listener, inbound, exchange, upstream, outbound; and passthrough for what is not covered."""
