"""What a conversion tells its user of single fields: what means something else now, and what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.runtime.jsontree import JsonObject


class ConversionError(Exception):
    """An object cannot be converted, because of some of its fields.

    Args:
        others: The same of others.
    """

    def __init__(self, path: str, problem: str, *others: tuple[str, str]) -> None:
        self.problems = [(path, problem), *others]
        super().__init__("; ".join(f"{path}: {problem}" if path else problem for path, problem in self.problems))


@dataclass(frozen=True, slots=True)
class Note:
    """One field of the input that is not simply found in the output again."""

    path: str
    """In the input, for instance `spec.runPolicy.cleanPodPolicy`."""

    message: str
    """What becomes of it and why, and what to do instead."""

    lost: bool = False
    """Whether it has no equivalent, so that the output means something else."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What becomes of one object."""

    objects: Sequence[JsonObject]
    """In the order in which they are to be created; shared parts are not to be changed."""

    notes: Sequence[Note] = ()


@dataclass(slots=True)
class Notes:
    """The notes of one object, in the order in which they were made."""

    notes: list[Note] = field(default_factory=list)

    def tell(self, path: str, message: str) -> None:
        """Tell what becomes of a field whose meaning is kept."""
        self._add(Note(path, message))

    def lose(self, path: str, message: str) -> None:
        """Tell that a field has no equivalent."""
        self._add(Note(path, message, lost=True))

    def _add(self, note: Note) -> None:
        if note not in self.notes:
            self.notes.append(note)
