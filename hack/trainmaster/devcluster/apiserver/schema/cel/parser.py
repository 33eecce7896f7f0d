"""Reading: what the text of a rule says about what the rule needs, without evaluating it.

The text is split into tokens, no more. That is enough to see which fields are selected from `self` and `oldSelf`, and
it is the same for every engine. Where a macro uses one of these names for its own variable, more fields are taken for
needed than are: that costs time and changes no result.
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


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function; the name has its namespace, a method is called on something."""

    name: str
    is_method: bool
    start: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What an expression needs."""

    selections: dict[str, tuple[Selection, ...]]
    """By variable; a variable that does not occur is not here."""
    calls: tuple[Call, ...]


@functools.lru_cache(maxsize=1024)
def tokens(expression: str) -> tuple[Token, ...]:
    """Split an expression; blanks and comments are left out."""
    return tuple(
        Token(match.lastgroup or "", match.group(), match.start())
        for match in _TOKEN.finditer(expression)
        if match.lastgroup != "blank"
    )


def read(expression: str, variables: tuple[str, ...] = ("self", "oldSelf")) -> Reading:
    """Find out which fields of the variables, and which functions, an expression uses."""
    words = tokens(expression)
    found: dict[str, list[Selection]] = {}
    calls: list[Call] = []
    for index, word in enumerate(words):
        if word.kind != "name":
            continue
        after_dot = index > 0 and words[index - 1].text in {".", "?"}
        if word.text in variables and not after_dot:
            found.setdefault(word.text, []).append(_selection(words, index))
        if _text(words, index + 1) == "(":
            calls.append(_call(words, index, is_method=after_dot))
    return Reading({name: tuple(each) for name, each in found.items()}, tuple(calls))


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
    """Tell whether a macro may use the name of the variable for its own, as in `list.all(self, ...)`."""
    words = tokens(expression)
    return any(
        word.text == variable and _text(words, index - 1) == "(" and _text(words, index + 1) == ","
        for index, word in enumerate(words)
    )


def _call(words: tuple[Token, ...], index: int, *, is_method: bool) -> Call:
    name = words[index].text
    if is_method and index >= 2 and words[index - 2].kind == "name" and _text(words, index - 3) != ".":
        return Call(f"{words[index - 2].text}.{name}", is_method=True, start=words[index].start)
    return Call(name, is_method=is_method, start=words[index].start)


def _text(words: tuple[Token, ...], index: int) -> str:
    return words[index].text if 0 <= index < len(words) else ""
