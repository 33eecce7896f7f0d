"""An informer of the simulated server's pods."""

from typing import Any

import pytest

from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS


@pytest.fixture
def informer(client: KubeClient, clock: Any) -> Informer:
    return Informer(client, PODS, clock=clock, random=lambda: 0.0)
