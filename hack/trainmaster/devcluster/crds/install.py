"""CustomResourceDefinitions: which there are, where their files are, and how a cluster gets them.

Those of JobSet and of the gang schedulers are here. The definitions of TrainJobs, of runtimes and of the Training
Operator's jobs belong to `deploy/crds`, where users of real clusters find them, and in a wheel to
`trainmaster.runtime`, which the controller has as well; what is installed here is read from the same as JSON.

Guarantees:
- What others changed in a definition is set back, what they added stays.
- A definition that is as it should be costs no write: clusters start again in no time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import orjson

import trainmaster.runtime
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.offline import DEFINITIONS
from trainmaster.devcluster.apiserver.resources import CRDS
from trainmaster.runtime.jsontree import JsonObject
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
TRAINING_OPERATOR_DEFINITIONS: Final = (
    "kubeflow.org_jaxjobs.yaml",
    "kubeflow.org_mpijobs.yaml",
    "kubeflow.org_paddlejobs.yaml",
    "kubeflow.org_pytorchjobs.yaml",
    "kubeflow.org_tfjobs.yaml",
    "kubeflow.org_xgboostjobs.yaml",
)

_HERE: Final = Path(__file__).parent
_PACKAGED: Final = Path(trainmaster.runtime.__file__).parent / "crds"
_CHECKOUT: Final = Path(__file__).parents[4] / "deploy" / "crds"
_OPTIONS = WriteOptions(field_manager="trainmaster-cluster", force=True)


def definition_file(name: str) -> Path:
    """Find the file of a definition."""
    for directory in (_HERE, _PACKAGED, _CHECKOUT):
        if (directory / name).is_file():
            return directory / name
    searched = ", ".join(map(str, (_HERE, _PACKAGED, _CHECKOUT)))
    raise FileNotFoundError(f"{name} is in none of {searched}; install trainmaster again")


async def install_definitions(api: Api, names: tuple[str, ...]) -> None:
    """Apply definitions, by the names of their files."""
    for name in names:
        definition = _read(name)
        if not _is_installed(api, definition):
            await api.patch(
                CRDS, None, definition["metadata"]["name"], definition, patch_type=PatchType.APPLY, options=_OPTIONS
            )


def _read(name: str) -> JsonObject:
    as_json = (DEFINITIONS / name).with_suffix(".json")
    definition: JsonObject = (
        orjson.loads(as_json.read_bytes()) if as_json.is_file() else load_yaml(definition_file(name).read_bytes())
    )
    return definition


def _is_installed(api: Api, definition: JsonObject) -> bool:
    """Tell whether applying a definition would change nothing, for all that can be seen without doing it."""
    try:
        live = api.get(CRDS, None, definition["metadata"]["name"])
    except StatusError:
        return False
    return bool(live["spec"] == definition["spec"] | {"conversion": live["spec"].get("conversion")})
