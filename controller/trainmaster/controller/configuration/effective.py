"""The configuration that is in effect: files and flags together, checked, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainmaster.controller.configuration.loading import (
    ConfigurationInvalid,
    Problem,
    decode_configuration,
    invalid,
    named,
    read_files,
    with_files,
)
from trainmaster.controller.configuration.overrides import Override, override
from trainmaster.controller.configuration.types import Configuration
from trainmaster.controller.configuration.validation import conflicts, notices
from trainmaster.controller.feature_gates import UnknownFeature, enabled_features, known_gates, parse_feature_gates
from trainmaster.runtime.field_errors import did_you_mean

FEATURE_GATES_FLAG: Final = "--feature-gates"


@dataclass(frozen=True, slots=True)
class EffectiveConfiguration:
    """What a manager with this file and these flags does."""

    configuration: Configuration
    """The file and the flags, with defaults."""

    features: Mapping[str, bool]
    """All feature gates, by file and flag."""

    gates_of_flag: Mapping[str, bool]
    """Those that the flag sets."""

    notices: Sequence[Problem]
    """What has no effect, or another one than its author may think."""

    problems: Sequence[Problem]
    """Why no manager would start with it."""

    overrides: Sequence[Override] = ()
    """What is in effect and does not come from the file, nor from `gates_of_flag`."""

    @property
    def open_features(self) -> frozenset[str]:
        """The feature gates that are open."""
        return frozenset(name for name, is_open in self.features.items() if is_open)


def effective_configuration(
    *paths: Path, feature_gates: str = "", overrides: Iterable[Override] = ()
) -> EffectiveConfiguration:
    """Read the configuration files, if there are any, and the flags.

    Args:
        *paths: The files, and directories of files.
        feature_gates: The flag for feature gates.
        overrides: What other flags and the environment say.

    Raises:
        ConfigurationInvalid: They cannot be read, or say something wrong, or contradict themselves.
    """
    files = read_files(paths)
    effective = complete(decode_configuration(files), feature_gates=feature_gates, overrides=overrides)
    if effective.problems:
        place = f"{named(files)}: " if files else ""
        raise ConfigurationInvalid(f"{place}{invalid(with_files(effective.problems, files))}", effective.problems)
    return effective


def complete(
    configuration: Configuration, *, feature_gates: str = "", overrides: Iterable[Override] = ()
) -> EffectiveConfiguration:
    """Add what the flags say to a configuration, and check what its sections say of each other.

    Raises:
        ConfigurationInvalid: A flag cannot be read, or says something wrong.
    """
    overridden = override(configuration, overrides)
    configuration = overridden.configuration
    try:
        gates = parse_feature_gates(feature_gates)
        enabled_features(gates)
    except UnknownFeature as error:
        raise ConfigurationInvalid(f"{FEATURE_GATES_FLAG}: {error}") from error
    in_file, known = configuration.feature_gates, known_gates()
    features = enabled_features({name: in_file[name] for name in known if name in in_file}, gates)
    problems = [
        Problem(f"featureGates.{name}", f"unknown feature gate {did_you_mean(name, known)}")
        for name in in_file
        if name not in known
    ]
    return EffectiveConfiguration(
        configuration,
        features,
        gates,
        notices=[*overridden.notices, *notices(configuration, features)],
        problems=[*problems, *conflicts(configuration, features)],
        overrides=overridden.overrides,
    )
