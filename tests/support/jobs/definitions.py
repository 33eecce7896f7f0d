"""The cluster of a recorded case: with our definitions of V1 jobs, or with those of the Training Operator 1.9."""

from __future__ import annotations

from functools import cache
from typing import Final

from support.original_crds import original_job_definitions
from support.sim.world import jobs_registry, registry_with

from trainmaster.devcluster.apiserver.registry import Registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CRDS
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    install_definitions,
)

_OTHERS: Final = (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS, *GANG_DEFINITIONS)


@cache
def registry_by(schemas: str) -> Registry:
    """Return what a cluster serves whose definitions of V1 jobs are `ours`, or `original`."""
    return jobs_registry() if schemas == "ours" else registry_with(_install_original)


async def _install_original(api: Api) -> None:
    await install_definitions(api, _OTHERS)
    for definition in original_job_definitions().values():
        await api.create(CRDS, definition, namespace=None)
