"""Where records live: one protocol (`base`), and the stores that keep its promises."""
