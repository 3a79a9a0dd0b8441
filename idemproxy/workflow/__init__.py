"""What an agent can ask: its records by key, its workflows as checkpoints, and its own memory, below the reserved prefix."""
