"""Custom resource definitions: which there are, and how a cluster gets them."""

from __future__ import annotations

from typing import Final

from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CRDS
from trainmaster.devcluster.crds.files import definition_file
from trainmaster.runtime.yamltext import load_yaml

JOBSET_DEFINITIONS: Final = ("jobset.x-k8s.io_jobsets.yaml",)
GANG_DEFINITIONS: Final = (
    "scheduling.volcano.sh_podgroups.yaml",
    "scheduling.volcano.sh_queues.yaml",
    "scheduling.x-k8s.io_podgroups.yaml",
)
TRAINER_DEFINITIONS: Final = (
    "trainer.kubeflow.org_clustertrainingruntimes.yaml",
    "trainer.kubeflow.org_optimizationjobs.yaml",
    "trainer.kubeflow.org_trainingruntimes.yaml",
    "trainer.kubeflow.org_trainjobs.yaml",
)

_OPTIONS = WriteOptions(field_manager="trainmaster-cluster", force=True)


async def install_definitions(api: Api, names: tuple[str, ...]) -> None:
    """Apply definitions; what others changed in them is set back, what they added stays."""
    for name in names:
        definition = load_yaml(definition_file(name).read_bytes())
        await api.patch(
            CRDS, None, definition["metadata"]["name"], definition, patch_type=PatchType.APPLY, options=_OPTIONS
        )
