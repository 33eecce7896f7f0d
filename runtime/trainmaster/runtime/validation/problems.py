"""What is wrong with a JobSet before there is one: each problem says where it is, and who would refuse what."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import label_value, qualified_name


class Consequence(Enum):
    """What comes of a problem. Nothing but a refusal that is certain stands in the way of a TrainJob."""

    JOBSET_REFUSED = auto()
    """The schema of JobSets or the webhook of JobSet refuses the JobSet."""

    JOB_REFUSED = auto()
    """The JobSet is taken, and the API server refuses the Jobs that its controller makes of it."""

    JOB_INCOMPLETE = auto()
    """The API server refuses the Jobs, unless an admission plugin of the cluster adds what is missing."""

    ODD = auto()
    """Nobody refuses anything, and it hardly does what its author wants."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a JobSet."""

    path: str
    """Below the JobSet."""

    detail: str
    consequence: Consequence = Consequence.JOB_REFUSED

    def report(self) -> FieldError | FieldWarning:
        """Say it of the TrainJob that becomes the JobSet."""
        text = f"{self.path}: {self.detail}"
        match self.consequence:
            case Consequence.JOBSET_REFUSED:
                detail = f"the JobSet that this TrainJob becomes would be refused: {text}"
                return FieldError("spec", detail, type="Forbidden")
            case Consequence.JOB_REFUSED:
                detail = f"the JobSet that this TrainJob becomes would be accepted, but its Jobs refused: {text}"
                return FieldError("spec", detail, type="Forbidden")
            case Consequence.JOB_INCOMPLETE:
                return FieldWarning(
                    "spec",
                    "the Jobs of the JobSet that this TrainJob becomes will be refused, unless an admission plugin of "
                    f"the cluster adds what is missing: {text}",
                )
            case Consequence.ODD:
                return FieldWarning("spec", f"in the JobSet that this TrainJob becomes: {text}")


def each(path: str, details: Iterable[str], consequence: Consequence = Consequence.JOB_REFUSED) -> Iterator[Problem]:
    """Several things that are wrong in one place."""
    return (Problem(path, detail, consequence) for detail in details)


def unique(
    path: str,
    items: Iterable[JsonObject],
    key: Callable[[JsonObject], Hashable],
    consequence: Consequence = Consequence.JOBSET_REFUSED,
) -> Iterator[Problem]:
    """Find items with the same key; the schema of JobSets refuses them wherever a list is a map by that key."""
    seen = set()
    for item in items:
        identity = key(item)
        if identity in seen:
            yield Problem(path, f"Duplicate value: {identity!r}", consequence)
        seen.add(identity)


def check_labels(labels: JsonObject, path: str, consequence: Consequence) -> Iterator[Problem]:
    """Check labels, or whatever selects by labels."""
    for key, value in labels.items():
        yield from each(path, (f"{key!r}: {problem}" for problem in qualified_name(key)), consequence)
        text = "" if value is None else value  # as the API server decodes null
        yield from each(path, (f"{text!r}: {problem}" for problem in label_value(text)), consequence)


def check_metadata(holder: JsonObject, path: str, consequence: Consequence) -> Iterator[Problem]:
    """Check the labels and annotations of an object, or of a template for objects."""
    prefix = f"{path}.metadata".removeprefix(".")
    metadata = holder.get("metadata") or {}
    yield from check_labels(metadata.get("labels") or {}, f"{prefix}.labels", consequence)
    for key in metadata.get("annotations") or {}:
        problems = (f"{key!r}: {problem}" for problem in qualified_name(key.lower()))
        yield from each(f"{prefix}.annotations", problems, consequence)
