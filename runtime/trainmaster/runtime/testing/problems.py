"""What a check finds: what is wrong, why it matters, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong with a plugin; each part is a sentence without its full stop."""

    what: str
    why: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}.\n    Why it matters: {self.why}.\n    What to do: {self.do}."


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield in which fields two JSON trees differ, each as a line for people."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}, key=str):
            below = f"{path}.{key}" if path else str(key)
            if key not in before or key not in after:
                yield f"{below} is {'gone' if key in before else 'new'}"
            else:
                yield from differences(before[key], after[key], below)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif before != after or type(before) is not type(after):
        yield f"{path or 'it'} is {after!r:.80} instead of {before!r:.80}"


def first_difference(before: Any, after: Any) -> str | None:
    """Return the first of the differences; None if there are none."""
    return next(differences(before, after), None)
