"""From files, environment and flags to the frozen `Settings` that the rest of the program reads."""
