"""How definitions come to a cluster: set right, and left alone when they are right."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.stack import api_server

from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CRDS
from trainmaster.devcluster.crds.install import (
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    TRAINING_OPERATOR_DEFINITIONS,
    definition_file,
    install_definitions,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml

DEPLOYED = (*TRAINER_DEFINITIONS, *TRAINING_OPERATOR_DEFINITIONS)
INSTALLED = ("kubeflow.org_tfjobs.yaml", *JOBSET_DEFINITIONS)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("installs definitions of its own")
        yield stack.cluster.api


def written(name: str) -> JsonObject:
    """A definition as its file in deploy/ has it."""
    definition: JsonObject = load_yaml(definition_file(name).read_bytes())
    return definition


def live(api: Api, name: str) -> JsonObject:
    found: JsonObject = copy_tree(api.get(CRDS, None, written(name)["metadata"]["name"]))
    return found


async def change(api: Api, name: str, patch: JsonObject) -> None:
    await api.patch(
        CRDS,
        None,
        written(name)["metadata"]["name"],
        patch,
        patch_type=PatchType.MERGE,
        options=WriteOptions(field_manager="somebody"),
    )


async def test_what_is_installed_is_what_is_deployed_and_not_written_again(api: Api) -> None:
    await install_definitions(api, DEPLOYED)
    before = [live(api, name) for name in DEPLOYED]
    for name, found in zip(DEPLOYED, before, strict=True):
        assert found["spec"] == written(name)["spec"] | {"conversion": {"strategy": "None"}}
    await install_definitions(api, DEPLOYED)
    assert [live(api, name) for name in DEPLOYED] == before


@pytest.mark.parametrize("name", INSTALLED)
async def test_what_somebody_changed_is_set_back_and_what_he_added_stays(api: Api, name: str) -> None:
    await install_definitions(api, (name,))
    versions = copy_tree(live(api, name)["spec"]["versions"])
    versions[0]["additionalPrinterColumns"] = [{"name": "Odd", "type": "string", "jsonPath": ".metadata.uid"}]
    await change(api, name, {"metadata": {"labels": {"team": "a"}}, "spec": {"versions": versions}})
    await install_definitions(api, (name,))
    assert live(api, name)["spec"]["versions"] == written(name)["spec"]["versions"]
    assert live(api, name)["metadata"]["labels"] == {"team": "a"}
