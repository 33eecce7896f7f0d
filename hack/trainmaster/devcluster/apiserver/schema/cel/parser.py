"""The parser: what the text of a rule says about which fields it needs, without evaluating it.

The text is split into tokens, no more. That is enough to see which fields are selected from `self` and `oldSelf`.
Where a macro uses one of these names for its own variable, more fields are taken for needed than are: that costs time
and changes no result.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|//[^\n]*)
    | (?P<string>
          (?:[rR][bB]?|[bB][rR])(?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''|"[^"\n]*"|'[^'\n]*')
        | [bB]?(?:\"\"\"(?s:\\.|.)*?\"\"\"|'''(?s:\\.|.)*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      )
    | (?P<name>[A-Za-z_]\w*|`[^`\n]*`)
    | (?P<number>\d[\w.]*)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word of an expression, and where it stands."""

    kind: str
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Fields selected one after the other from a variable, in `self.a.b.size()`: a and b; none if it is used whole."""

    names: tuple[str, ...]
    positions: tuple[int, ...]
    """Where the dot before each name stands."""
    start: int
    end: int
    is_plain: bool
    """Whether this can be replaced by a name without a change of meaning: not in `has(self.a)`, nor in `self.?a`."""


@functools.lru_cache(maxsize=1024)
def tokens(expression: str) -> tuple[Token, ...]:
    """Split an expression; blanks and comments are left out."""
    return tuple(
        Token(match.lastgroup or "", match.group(), match.start())
        for match in _TOKEN.finditer(expression)
        if match.lastgroup != "blank"
    )


def find_selections(
    expression: str, variables: tuple[str, ...] = ("self", "oldSelf")
) -> dict[str, tuple[Selection, ...]]:
    """Return what an expression selects from the variables, by variable; one that does not occur is not there."""
    words = tokens(expression)
    found: dict[str, list[Selection]] = {}
    for index, word in enumerate(words):
        after_dot = index > 0 and words[index - 1].text in {".", "?"}
        if word.kind == "name" and word.text in variables and not after_dot:
            found.setdefault(word.text, []).append(_selection(words, index))
    return {name: tuple(each) for name, each in found.items()}


def _selection(words: tuple[Token, ...], first: int) -> Selection:
    names: list[str] = []
    positions: list[int] = []
    index = first + 1
    is_plain = not (_text(words, first - 1) == "(" and _text(words, first - 2) == "has")
    while _text(words, index) == ".":
        # `a.?b` selects b if it is there.
        after = index + 2 if _text(words, index + 1) == "?" else index + 1
        if after >= len(words) or words[after].kind != "name" or _text(words, after + 1) == "(":
            break
        names.append(words[after].text.strip("`"))
        positions.append(words[index].start)
        is_plain = is_plain and after == index + 1 and not words[after].text.startswith("`")
        index = after + 1
        if not is_plain and words[after - 1].text == "?":
            break  # what follows is an optional value, not the field
    start, last = words[first].start, words[index - 1]
    end = last.start + len(last.text)
    # Blanks in between would have to be told from the name.
    is_plain = is_plain and bool(names) and end - start == len(words[first].text) + sum(len(name) + 1 for name in names)
    return Selection(tuple(names), tuple(positions), start, end, is_plain)


def is_shadowed(expression: str, variable: str) -> bool:
    """Return whether a macro may use the name of the variable for its own, as in `list.all(self, ...)`."""
    words = tokens(expression)
    return any(
        word.text == variable and _text(words, index - 1) == "(" and _text(words, index + 1) == ","
        for index, word in enumerate(words)
    )


def _text(words: tuple[Token, ...], index: int) -> str:
    return words[index].text if 0 <= index < len(words) else ""
