"""The operators' listener: metrics, and whether the proxy lives, is ready, and has started."""
