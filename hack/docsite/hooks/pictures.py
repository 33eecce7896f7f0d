"""Pictures lead to themselves: those of dashboards are wider than a page, and are read in full size."""

from __future__ import annotations

import re
from typing import Any, Final

_PICTURE: Final = re.compile(r'(?<!">)<img [^>]*?src="(?P<source>[^"]+\.png)"[^>]*>')


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with a link around each picture that has none."""
    return _PICTURE.sub(r'<a href="\g<source>">\g<0></a>', html)
