"""The keys that are pressed on a terminal, from the bytes that it sends."""

from __future__ import annotations

import codecs
import re
from enum import StrEnum
from typing import Final


class Key(StrEnum):
    """A key that is no character."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"


_SEQUENCES: Final = {
    "[A": Key.UP,
    "OA": Key.UP,
    "[B": Key.DOWN,
    "OB": Key.DOWN,
    "[5~": Key.PAGE_UP,
    "[6~": Key.PAGE_DOWN,
    "[H": Key.HOME,
    "OH": Key.HOME,
    "[1~": Key.HOME,
    "[F": Key.END,
    "OF": Key.END,
    "[4~": Key.END,
}
"""What terminals send after an escape character, in both of their modes."""

_CONTROLS: Final = {"\r": Key.ENTER, "\n": Key.ENTER, "\x7f": Key.BACKSPACE, "\b": Key.BACKSPACE}
_TOKENS: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])|[\s\S]")


class Keyboard:
    """Takes bytes as they come; a character may be cut in between."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def keys(self, data: bytes) -> list[str]:
        """Return the keys: a `Key`, or the character itself. What no key of ours sends is left out."""
        found: list[str] = []
        for sent in _TOKENS.findall(self._decoder.decode(data)):
            if len(sent) > 1:
                if (key := _SEQUENCES.get(sent[1:])) is not None:
                    found.append(key)
            elif sent == "\x1b":
                found.append(Key.ESCAPE)
            elif sent in _CONTROLS:
                found.append(_CONTROLS[sent])
            elif sent.isprintable():
                found.append(sent)
        return found
