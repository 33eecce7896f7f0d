"""The policy keeps to the interface, and puts the company's rules into force."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from acme_policy import COST_CENTRE, TRAINJOB, AcmePolicy, PolicyOptions

from trainmaster.runtime.sdk import Info, JsonObject, Rejected, TrainJob
from trainmaster.runtime.testing import PluginConformance, info, replicated_job, runtime, trainjob

HERE = Path(__file__).parents[1]
OPTIONS = {"registries": ["registry.acme.example", "docker.io/acme"], "reached_from": ["monitoring"]}


def file(name: str) -> JsonObject:
    loaded: JsonObject = yaml.safe_load((HERE / name).read_text(encoding="utf-8"))
    return loaded


class TestConformance(PluginConformance):
    """What every plugin has to keep to."""

    plugin = AcmePolicy
    options = file("config.yaml")["plugins"]["options"]["acme-policy"]
    runtime = file("runtime.yaml")
    jobs = (file("trainjob.yaml"),)


def policy(**options: Any) -> AcmePolicy:
    return AcmePolicy(PolicyOptions.model_validate({**OPTIONS, **options}))


def case(image: str | None = None, *, of_runtime: str = "registry.acme.example/train:1") -> tuple[Info, TrainJob]:
    """A TrainJob that says who pays, before any plugin ran."""
    trainer = {"image": image} if image else {"numNodes": 2}
    job = trainjob(labels={COST_CENTRE: "robotics"}, trainer=trainer)
    steps = [replicated_job(containers=[{"name": "node", "image": of_runtime}])]
    return info(job, runtime(template={"spec": {"replicatedJobs": steps}})), TrainJob.model_validate(job)


def errors(plugin: AcmePolicy, given: tuple[Info, TrainJob], old: TrainJob | None = None) -> Iterator[str]:
    return (str(error) for error in plugin.validate(*given, old=old))


@pytest.mark.parametrize("image", ["registry.acme.example/train:2", "acme/train", "docker.io/acme/train@sha256:0"])
def test_images_of_the_company_are_admitted(image: str) -> None:
    assert list(errors(policy(), case(image))) == []


@pytest.mark.parametrize("image", ["train", "evil/train", "registry.acme.example.evil/train", "localhost:5000/acme/a"])
def test_images_of_others_are_refused_by_their_field(image: str) -> None:
    (told,) = errors(policy(), case(image))
    assert told == (
        "spec.trainer.image: Forbidden: must be an image of registry.acme.example, docker.io/acme; push it there first"
    )


def test_an_image_of_the_runtime_counts_only_if_it_is_used() -> None:
    (told,) = errors(policy(), case(of_runtime="evil/train"))
    assert told.startswith("spec.runtimeRef (node, container node): Forbidden: ")
    assert list(errors(policy(), case("acme/train", of_runtime="evil/train"))) == []


def test_what_was_admitted_before_the_rules_may_be_changed() -> None:
    given = case("evil/train")
    assert list(errors(policy(), given, old=given[1])) == []


def test_somebody_has_to_pay() -> None:
    given = info(), TrainJob.model_validate(trainjob())
    (told,) = errors(policy(registries=[]), given)
    assert told == f"metadata.labels[{COST_CENTRE}]: Required value: must say which cost centre pays"
    assert list(errors(policy(registries=[], cost_centre="research"), given)) == []


def test_what_no_webhook_has_refused_is_not_built() -> None:
    with pytest.raises(Rejected, match="must be an image of"):
        policy().enforce_pod_spec(*case("evil/train"))


def test_pods_say_who_pays_and_are_left_alone() -> None:
    given = case()
    policy().enforce_pod_spec(*given)
    (pods,) = given[0].pod_sets
    assert pods.pod_template["metadata"]["labels"] == {COST_CENTRE: "robotics", TRAINJOB: "demo"}
    pods.count = 3
    network, budget = (desired.object["spec"] for desired in policy().build(*given))
    assert network["podSelector"] == budget["selector"] == {"matchLabels": {TRAINJOB: "demo"}}
    assert budget["minAvailable"] == 3
    assert [list(peer) for peer in network["ingress"][0]["from"]] == [["podSelector"], ["namespaceSelector"]]


def test_exempt_namespaces_have_no_rules() -> None:
    job = TrainJob.model_validate(trainjob(namespace="sandbox"))
    assert policy().applies_to(job)
    assert not policy(exempt_namespaces=["sandbox"]).applies_to(job)
