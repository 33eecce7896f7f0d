"""What a check finds, and facts that a check may not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

T = TypeVar("T")

Status = Literal["ok", "warn", "fail", "unknown"]
"""`fail`: an installation does not work, would not, or would harm; `warn`: somebody should look."""


class Finding(NamedTuple):
    """One line of the report."""

    status: Status
    message: str
    what_next: str = ""
    """What to do about it."""


class Unknown(Exception):
    """A fact that could not be fetched; the text says why and what to do."""

    def __init__(self, message: str, what_next: str) -> None:
        super().__init__(message)
        self.what_next = what_next


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """Something that the cluster said, or why it did not."""

    known: T | Unknown

    @property
    def value(self) -> T:
        """What it said.

        Raises:
            Unknown: It did not.
        """
        if isinstance(self.known, Unknown):
            raise self.known
        return self.known

    def require(self) -> None:
        """Go on only if it said so.

        Raises:
            Unknown: It did not.
        """
        if isinstance(self.known, Unknown):
            raise self.known


def ok(message: str) -> Finding:
    """Nothing to do."""
    return Finding("ok", message)


def warn(message: str, what_next: str = "") -> Finding:
    """Somebody should look."""
    return Finding("warn", message, what_next)


def unknown(message: str, what_next: str) -> Finding:
    """It is not known whether all is well."""
    return Finding("unknown", message, what_next)


def fail(message: str, what_next: str) -> Finding:
    """An installation does not work, would not, or would harm."""
    return Finding("fail", message, what_next)
