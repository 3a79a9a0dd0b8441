"""Write every generated part anew, and name the files that changed."""

from __future__ import annotations

import sys

from docs.generate.chart import SCHEMA, with_configuration
from docs.generate.pages import DOCS, filled_in, pages

for path, written_anew in (*((page, filled_in) for page in pages()), (SCHEMA, with_configuration)):
    text = path.read_text("utf-8")
    if (written := written_anew(text)) != text:
        path.write_text(written, "utf-8")
        sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")
