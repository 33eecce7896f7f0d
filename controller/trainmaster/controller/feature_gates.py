"""Feature gates: switches for what is not yet on for everybody.

`Name=true` pairs, in the configuration file and on the command line; `AllAlpha` and `AllBeta` switch whole stages, and
a gate that is named itself always wins over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from trainmaster.runtime.api.constants import SCHEDULING_GATE, TRAIN_JOB_STATUS_GATE


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One gate."""

    stage: Literal["ALPHA", "BETA"]
    default: bool


FEATURES: Final[Mapping[str, FeatureSpec]] = MappingProxyType(
    {
        TRAIN_JOB_STATUS_GATE: FeatureSpec("ALPHA", default=False),
        SCHEDULING_GATE: FeatureSpec("ALPHA", default=False),
    },
)
"""All gates, by name: `TrainJobStatus` lets trainers report their progress, `TrainJobWorkloadAwareScheduling` has
Kubernetes itself schedule gangs.
"""

_STAGES: Final = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}


class UnknownFeature(ValueError):
    """A gate that does not exist, or a value that is neither true nor false."""


def parse_feature_gates(text: str) -> dict[str, bool]:
    """Read the command-line form `A=true,B=false`.

    Raises:
        UnknownFeature: A part is not of that form.
    """
    gates: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if value.lower() not in ("true", "false"):
            raise UnknownFeature(f"feature gate {part!r}: write it as Name=true or Name=false")
        gates[name.strip()] = value.lower() == "true"
    return gates


def known_gates() -> list[str]:
    """Return what can be switched: gates and whole stages."""
    return [*FEATURES, *_STAGES]


def deciding_gates(name: str) -> tuple[str, ...]:
    """Return what decides on a gate, the stronger first: its own name, and that of its stage."""
    return name, *(gate for gate, stage in _STAGES.items() if stage == FEATURES[name].stage)


def enabled_features(*sources: Mapping[str, bool]) -> dict[str, bool]:
    """Combine gates from several sources, later ones first in rank, with the defaults.

    Raises:
        UnknownFeature: A source names a gate that does not exist.
    """
    requested = {name: value for source in sources for name, value in source.items()}
    unknown = sorted(requested.keys() - set(known_gates()))
    if unknown:
        raise UnknownFeature(
            f"unknown feature gate {', '.join(map(repr, unknown))}; known are: {', '.join(known_gates())}"
        )
    enabled = {name: feature.default for name, feature in FEATURES.items()}
    for stage_gate, stage in _STAGES.items():
        if stage_gate in requested:
            enabled |= {name: requested[stage_gate] for name, feature in FEATURES.items() if feature.stage == stage}
    return enabled | {name: value for name, value in requested.items() if name in FEATURES}
