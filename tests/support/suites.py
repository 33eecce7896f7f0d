"""One test of a suite of the test kit, which must fail or pass, and a plugin that conforms."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from trainmaster.runtime.sdk import Desired, FieldError, Info, TrainJob, Watch, env_value, upsert_env
from trainmaster.runtime.testing import PluginConformance

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


def failure(test: str, plugin: Any, **attributes: Any) -> str:
    """Run one test of a suite, which must fail, and return what it says."""
    suite = type("TestBroken", (PluginConformance,), {"plugin": plugin, **attributes})
    with pytest.raises(AssertionError) as caught:
        getattr(suite(), test)()
    told = str(caught.value)
    for part in ("does not conform", "Why it matters: ", "What to do: "):
        assert part in told
    return told


def passes(test: str, plugin: Any, **attributes: Any) -> None:
    getattr(type("TestFine", (PluginConformance,), {"plugin": plugin, **attributes})(), test)()


class Good:
    """Does a bit of everything, as it should be done."""

    name = "good"

    class Config(BaseModel):
        zone: str = "a"

    class Options(BaseModel):
        region: str = "eu"

    ml_policy_config = Config
    options_model = Options

    def __init__(self, options: Options) -> None:
        self._region = options.region

    def watch_extension(self) -> Iterable[Watch]:
        return [Watch("v1", "ConfigMap", "configmaps", writes=True)]

    def enforce_pod_spec(self, info: Info, job: TrainJob, config: Config) -> None:
        for pods in info.pod_sets:
            for container in pods.pod_spec.get("containers") or []:
                upsert_env(container, [env_value("REGION", self._region), env_value("ZONE", config.zone)])

    def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
        yield Desired(
            {**CONFIG_MAP, "metadata": {"name": f"{job.metadata.name}-good"}, "data": {"region": self._region}}
        )

    def validate(self, job: TrainJob) -> Iterator[FieldError]:
        if job.spec.trainer and job.spec.trainer.num_nodes == 7:
            yield FieldError("spec.trainer.numNodes", "must not be 7", value=7)


GOOD: dict[str, Any] = {
    "runtime": {"mlPolicy": {"numNodes": 2, "custom": {"name": "good", "config": {"zone": "b"}}}},
    "options": {"region": "us"},
    "jobs": ({}, {"trainer": {"numNodes": 3}}),
}
