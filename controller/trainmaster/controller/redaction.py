"""What looks like a credential is taken out of texts that others read: logs, events, conditions, probes.

We write no credential into a text ourselves. Others may: an API server, a webhook or a proxy between that refuses a
request may quote it. So texts from outside are redacted where they come in (`kube.rest.errors`), and every line of the
log and every note of an event once more.

Guarantees:
- M-11: bearer tokens and other values of an Authorization header, JSON web tokens, private keys in PEM, as they are or
  in base64, and passwords in URLs become `[redacted]`.
"""

from __future__ import annotations

import re
from typing import Any, Final

REDACTED: Final = "[redacted]"

_CREDENTIALS: Final = re.compile(
    r"""
      (?P<scheme> \b(?i:bearer|basic)\s+ ) (?: (?=\S*[0-9]) [A-Za-z0-9._~+/=-]{12,} | [A-Za-z0-9._~+/=-]{20,} )
    | (?P<run> \beyJ[A-Za-z0-9_-]{8,}+ ) (?P<token> \.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)? )?
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \bLS0tLS1CRUdJTi[A-Za-z0-9+/=_-]+
    | (?P<url> \b[a-z][a-z0-9+.-]{1,15}:// ) [^\s/@:]*:[^\s/@]+ (?=@)
    """,
    re.VERBOSE | re.DOTALL,
)


_MARKS: Final = ("bearer", "basic", "eyj", "private key", "ls0tls1crudjti", "@")
"""In small letters, what each credential has about it: most texts have none, and need no search of their patterns."""


def redact(text: str) -> str:
    """Return a text without credentials."""
    small = text.lower()
    return _CREDENTIALS.sub(_redacted, text) if any(mark in small for mark in _MARKS) else text


def redact_all(value: Any) -> Any:
    """Return a value of a log line, or of an answer, without credentials in its texts."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redact_all(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_all(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))


def _redacted(match: re.Match[str]) -> str:
    if match["run"] and not match["token"]:
        # No token. That it was matched all the same keeps the search linear: it goes on behind the run.
        return match[0]
    return f"{match['scheme'] or match['url'] or ''}{REDACTED}"
