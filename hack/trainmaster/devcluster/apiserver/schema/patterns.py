"""RE2 patterns, as Kubernetes schemas use them, in Python's `re`.

The two agree on most of what schemas contain. What differs is translated: `$` and `\\z` mean the very end of the text,
classes such as `\\d` are ASCII, and POSIX classes, `\\Q...\\E`, `\\x{...}` and `(?<name>...)` exist.
A pattern that RE2 understands and `re` does not (Unicode classes) raises `re.error`.
"""

from __future__ import annotations

import functools
import re

_POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_TOKEN = re.compile(
    r"""
      \\Q(?P<literal>.*?)(?:\\E|\Z)
    | \\x\{(?P<code>[0-9A-Fa-f]{1,8})\}
    | (?P<end>\\z)
    | (?P<escape>\\.)
    | \[:(?P<posix>[a-z]+):\]
    | (?P<open>\[\^?\]?)
    | (?P<close>\])
    | (?P<dollar>\$)
    | (?P<group>\(\?<(?![=!]))
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an RE2 pattern; raises `re.error` where `re` has nothing like it."""
    multiline = re.match(r"\(\?[a-zA-Z]*m[a-zA-Z]*\)", pattern) is not None
    return re.compile(_translate(pattern, dollar="$" if multiline else r"\Z"), re.ASCII)


def _translate(pattern: str, *, dollar: str) -> str:
    translated: list[str] = []
    in_class = False
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        match token.lastgroup:
            case "literal":
                text = re.escape(token["literal"])
            case "code":
                text = f"\\U{int(token['code'], 16):08X}"
            case "end":
                text = r"\Z"
            case "posix" if in_class and token["posix"] in _POSIX_CLASSES:
                text = _POSIX_CLASSES[token["posix"]]
            case "open" if in_class:
                text = text.replace("[", r"\[")
                in_class = not text.endswith("]")
            case "open":
                in_class = True
            case "close":
                in_class = False
            case "dollar" if not in_class:
                text = dollar
            case "group" if not in_class:
                text = "(?P<"
        translated.append(text)
    return "".join(translated)
