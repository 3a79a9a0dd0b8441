"""What writes the generated parts of the documentation: `python -m docs.generate`."""
