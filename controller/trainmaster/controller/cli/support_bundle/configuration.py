"""The configuration of a manager: the files as they were given, and what is in effect with it.

Options of plugins may be anything, so that no text in them is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from trainmaster.controller.cli.rbac import AS_DEPLOYED
from trainmaster.controller.cli.support_bundle.bundle import Bundle
from trainmaster.controller.cli.support_bundle.redaction import Redactor
from trainmaster.controller.configuration import (
    ConfigurationFile,
    ConfigurationInvalid,
    EffectiveConfiguration,
    complete,
    decode_configuration,
)
from trainmaster.controller.configuration.loading import merged
from trainmaster.controller.debugging import state
from trainmaster.runtime.yamltext import YamlError, load_yaml


def add_configuration(
    bundle: Bundle, redactor: Redactor, directory: str, files: Sequence[ConfigurationFile]
) -> EffectiveConfiguration:
    """Add a configuration; returns what is in effect: with none, or with one that is wrong, that of our manifests."""
    deployed = complete(AS_DEPLOYED)
    if not files:
        bundle.lacks(f"{directory}/configuration.json", "no ConfigMap of the configuration was found")
        return deployed
    try:
        effective = complete(decode_configuration(files))
    except ConfigurationInvalid as error:
        bundle.lacks(f"{directory}/configuration.json", f"it cannot be used: {error}")
        _add_given(bundle, redactor, directory, files)
        return deployed
    _add_given(bundle, redactor, directory, files)
    shown = {
        "inEffect": state.configuration(effective.configuration),
        "featureGates": dict(effective.features),
        "notices": [str(each) for each in effective.notices],
        "problems": [str(each) for each in effective.problems],
    }
    bundle.add(f"{directory}/configuration.json", shown)
    return effective


def _add_given(bundle: Bundle, redactor: Redactor, directory: str, files: Sequence[ConfigurationFile]) -> None:
    """Add what the files say together, without their comments."""
    try:
        given: Any = functools.reduce(merged, (load_yaml(file.text) for file in files))
    except YamlError:
        return  # what is wrong with it has been said
    redactor.learn(given)  # before it is taken out
    plugins = given.get("plugins") if isinstance(given, dict) else None
    if isinstance(plugins, dict) and "options" in plugins:
        plugins["options"] = state.without_texts(plugins["options"])
    bundle.add(f"{directory}/configuration.given.json", given)
