"""Escaping: how the fields of an object are called in a rule.

CEL names are identifiers, JSON names are not: `a-b` is `a__dash__b` in a rule, and a reserved word such as `namespace`
is `__namespace__`. Reserved words that CEL can read after a dot may also stand as they are, as in Kubernetes 1.33.
"""

from __future__ import annotations

import re
from collections.abc import Container

_RESERVED = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ORIGINALS = {escape: text for text, escape in _ESCAPES.items()}
_SPECIAL = re.compile(r"__|[-./]")
_ESCAPED = re.compile(r"__[^_]+__")
_EXPRESSIBLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")


def escape(name: str) -> str | None:
    """Return the name of a field in a rule, or None if rules cannot reach a field of this name."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _EXPRESSIBLE.fullmatch(name):
        return None
    return _SPECIAL.sub(lambda match: _ESCAPES[match.group()], name)


def find(name: str, fields: Container[str]) -> str | None:
    """Return which of the fields a rule means by a name, if any."""
    if name in _RESERVED:
        return name if name in fields else None
    if name.startswith("__") and name.endswith("__") and name[2:-2] in _RESERVED:
        original = name[2:-2]
    else:
        original = _ESCAPED.sub(lambda match: _ORIGINALS.get(match.group(), match.group()), name)
    # A name that should have been escaped is no name of the field: `a__b` is not the field a__b.
    return original if original in fields and escape(original) == name else None


def spellings(name: str) -> tuple[str, ...]:
    """Return every name by which rules can reach a field."""
    escaped = escape(name)
    if escaped is None:
        return ()
    return (escaped, name) if name in _RESERVED else (escaped,)
