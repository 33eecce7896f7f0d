"""JSON trees as block YAML, the way programs in Go write it: keys sorted, lists not indented below their key.

Guarantees:
- Every reader reads the same tree, whether it follows YAML 1.1 (PyYAML, Kubernetes) or 1.2: whatever one of them could
  take for something else than a string is in quotes, whatever one of them refuses is escaped.
- A text of several lines stands as it is (`|`) where that is safe.
- Lines are not folded.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_WORD: Final = r"(?:[A-Za-z0-9._/@+=,-]|:(?=[A-Za-z0-9./]))"
_PLAIN: Final = re.compile(rf"[A-Za-z/]{_WORD}*(?: {_WORD}+)*")
"""Words that can stand without quotes: no indicator at the start, no colon or number sign that means something."""

_OTHER_TYPES: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that some reader takes for a boolean or for nothing, in any case."""

_LINES: Final = re.compile("(?!.*[\x85\u2028\u2029])[^ \n].*\n.*[^ \n]\n?", re.DOTALL)
"""Texts of several lines that stand as they are, unless PyYAML has to escape something. YAML 1.1 knows other ends of
lines, too.
"""

_WIDTH: Final = 2**31 - 1


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The safe dumper (in C where PyYAML has it), with a style for each text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's
        """Write what occurs several times as often as it does."""
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Choose the style of a text."""
        if _PLAIN.fullmatch(text) and text.lower() not in _OTHER_TYPES:
            style = None
        else:
            style = "|" if _LINES.fullmatch(text) else '"'
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_Dumper.add_representer(str, _Dumper.represent_text)


def dump_yaml(tree: Any) -> str:
    """Write a JSON tree, no more deeply nested than `MAX_DEPTH`, as a YAML document."""
    text: str = yaml.dump(tree, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=_WIDTH)
    return text.removesuffix("...\n")
