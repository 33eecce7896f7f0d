"""CustomResourceDefinitions: which there are, where their files are, and how a cluster gets them.

The definitions of TrainJobs and runtimes belong to `deploy/crds`, where users of real clusters find them. A built wheel
carries them beside those of JobSet and of the gang schedulers; in a checkout they are read from where they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CRDS
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

_PACKAGED: Final = Path(__file__).parent
_CHECKOUT: Final = Path(__file__).parents[4] / "deploy" / "crds"
_OPTIONS = WriteOptions(field_manager="trainmaster-cluster", force=True)


def definition_file(name: str) -> Path:
    """Find the file of a definition."""
    for directory in (_PACKAGED, _CHECKOUT):
        if (directory / name).is_file():
            return directory / name
    raise FileNotFoundError(f"{name} is neither in {_PACKAGED} nor in {_CHECKOUT}; install trainmaster again")


async def install_definitions(api: Api, names: tuple[str, ...]) -> None:
    """Apply definitions; what others changed in them is set back, what they added stays."""
    for name in names:
        definition = load_yaml(definition_file(name).read_bytes())
        await api.patch(
            CRDS, None, definition["metadata"]["name"], definition, patch_type=PatchType.APPLY, options=_OPTIONS
        )
