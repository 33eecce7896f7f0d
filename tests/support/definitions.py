"""The definitions of custom resources as they are deployed: each is read once, for they are large."""

from __future__ import annotations

from functools import cache

from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    definition_file,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml

TRAINING = (*TRAINER_DEFINITIONS, *JOBSET_DEFINITIONS)
ALL = (*TRAINING, *GANG_DEFINITIONS)


def definitions(names: tuple[str, ...] = TRAINING) -> list[JsonObject]:
    """Return the definitions in the files of these names, a new copy each time."""
    return [copy_tree(_definition(name)) for name in names]


@cache
def _definition(name: str) -> JsonObject:
    definition: JsonObject = load_yaml(definition_file(name).read_bytes())
    return definition
