"""What a manager that runs says of its plugins: its readiness tells, to everybody, which of them it does not call."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import Final
from urllib.parse import urlsplit

from trainmaster.controller.cli.options import CommandError

_TIMEOUT: Final = 5.0
_READYZ: Final = "/readyz"

_LINE: Final = re.compile(r"^\[\+\]plugins ok: (.*)$", re.MULTILINE)
_QUARANTINED: Final = re.compile(r"(\S+) is quarantined (.*)")


def quarantined_plugins(address: str) -> dict[str, str]:
    """Return the plugins that a manager does not call for now, each with the reason.

    Args:
        address: Where it serves probes, for instance `http://127.0.0.1:8081`; with a path if that is not `/readyz`.

    Raises:
        CommandError: It cannot be asked.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise CommandError(f"--manager {address!r} is no address; give that of its probes, http://127.0.0.1:8081 say")
    url = f"{parts.scheme}://{parts.netloc}{parts.path if parts.path not in ('', '/') else _READYZ}?verbose"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310 - http or https, as was checked
            text = response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")  # not ready, and tells all the same
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CommandError(
            f"the manager cannot be asked at {url}: {reason}; --manager is where it serves probes"
        ) from error
    found = _LINE.search(text)
    parts_of_line = found[1].split("; ") if found else []
    return {each[1]: each[2] for part in parts_of_line if (each := _QUARANTINED.match(part))}
