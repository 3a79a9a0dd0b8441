"""Write every generated part anew, and name the pages that changed."""

from __future__ import annotations

import sys

from docs.generate.pages import DOCS, filled_in, pages

for page in pages():
    text = page.read_text("utf-8")
    if (written := filled_in(text)) != text:
        page.write_text(written, "utf-8")
        sys.stdout.write(f"{page.relative_to(DOCS.parent)}\n")
