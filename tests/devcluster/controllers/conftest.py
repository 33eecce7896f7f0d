"""A cluster that is driven step by step, with a namespace to work in."""

from __future__ import annotations

from importlib import resources

import pytest
import yaml

from trainmaster.devcluster.testing.stepper import Stepper
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def cluster() -> Stepper:
    stepper = Stepper()
    await stepper.namespace("default")
    return stepper


@pytest.fixture(scope="session")
def jobset_definition() -> JsonObject:
    path = resources.files("trainmaster.devcluster.crds") / "jobset.x-k8s.io_jobsets.yaml"
    loaded: JsonObject = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return loaded
