"""The profile of a manager: of each phase, what CPU it took, for which causes, in which functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from profiling.causes import IMPORTS, OTHER, cause_of, file_of
from profiling.sampler import Sample
from trainmaster.runtime.jsontree import JsonObject

MOST_FUNCTIONS: Final = 100
"""So many of each phase are kept, by each of the two orders."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that was seen."""

    name: str
    own: float
    """Share of the samples that found it innermost."""

    inclusive: float
    """Share of the samples that found it anywhere."""


@dataclass(frozen=True, slots=True)
class PhaseProfile:
    """What a phase took."""

    cpu: float
    """Milliseconds of CPU for a job."""

    samples: int
    causes: Mapping[str, float]
    """Shares, by cause."""

    functions: tuple[Function, ...]

    @classmethod
    def of(cls, samples: Iterable[Sample], cpu: float) -> Self:
        """Count samples; imports, which no job causes, are left out."""
        causes: Counter[str] = Counter()
        own: Counter[str] = Counter()
        inclusive: Counter[str] = Counter()
        for sample in samples:
            cause = cause_of(sample.calls)
            if cause == IMPORTS:
                continue
            causes[cause] += sample.times
            names = [f"{file_of(call.file)}:{call.function}" for call in sample.calls]
            own[names[0]] += sample.times
            for name in set(names):
                inclusive[name] += sample.times
        total = causes.total()
        kept = {name for counter in (own, inclusive) for name, _ in counter.most_common(MOST_FUNCTIONS)}
        functions = (Function(name, own[name] / total, inclusive[name] / total) for name in kept)
        return cls(
            cpu=cpu,
            samples=total,
            causes={cause: count / total for cause, count in causes.most_common()},
            functions=tuple(sorted(functions, key=lambda each: (-each.own, -each.inclusive, each.name))),
        )

    def share(self, cause: str) -> float:
        """Return the share of a cause."""
        return self.causes.get(cause, 0.0)

    @property
    def unexplained(self) -> float:
        """The share that no cause has."""
        return self.share(OTHER)

    def to_json(self) -> JsonObject:
        """Return it for `from_json`."""
        return {
            "cpu": round(self.cpu, 4),
            "samples": self.samples,
            "causes": {cause: round(share, 4) for cause, share in self.causes.items()},
            "functions": [[each.name, round(each.own, 4), round(each.inclusive, 4)] for each in self.functions],
        }

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read what `to_json` has written."""
        functions = tuple(Function(*each) for each in document["functions"])
        return cls(document["cpu"], document["samples"], document["causes"], functions)
