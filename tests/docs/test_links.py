"""Every link and every path in the documents leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_every_link_leads_to_a_file() -> None:
    missing = [
        (str(document.relative_to(ROOT)), link)
        for document in DOCUMENTS
        for link in LINK.findall(CODE.sub("", document.read_text()))
        if not (document.parent / link).exists()
    ]
    assert missing == []
