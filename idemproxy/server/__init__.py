"""A connection of either listener: aiohttp's, but for what that would read too freely, and what it would answer."""
