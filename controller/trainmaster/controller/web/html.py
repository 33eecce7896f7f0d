"""HTML, escaped: what jobs are called and say is text of strangers, and never becomes markup.

`Markup` is text that is markup already. Everything else that is put into an element is escaped, as a child or as the
value of an attribute. There is no other way to make markup here.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

_VOID: Final = frozenset({"meta", "link", "input", "br"})


class Markup(str):
    """Text that is markup."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
"""What an element may have in it: text, markup, or several of these."""


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """Make an element.

    Args:
        attributes: By name, where `_` stands for `-` and a last one is left out; those that are None or False are
            absent, and one that is True has no value.
    """
    written = "".join(_attribute(key.removesuffix("_").replace("_", "-"), value) for key, value in attributes.items())
    start = f"<{name}{written}>"
    return Markup(start if name in _VOID else f"{start}{join(children)}</{name}>")


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def join(children: Child) -> Markup:
    """Write children one after the other, escaped unless they are markup."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int):
        return Markup(escape(str(children)))
    return Markup("".join(join(each) for each in children))
