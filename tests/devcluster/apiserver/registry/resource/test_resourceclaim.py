"""ResourceClaims and their templates: judged as by a real server, then 501 for what would wait for ever."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusals import mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject

CLAIMS = GroupResource("resource.k8s.io", "resourceclaims")
TEMPLATES = GroupResource("resource.k8s.io", "resourceclaimtemplates")
GPU = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
PATH = "spec.devices"


def claim(**devices: Any) -> JsonObject:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [GPU], **devices}}}


def exactly(**fields: Any) -> JsonObject:
    return claim(requests=[{"name": "gpu", "exactly": {"deviceClassName": "gpu", **fields}}])


async def refusal(api: Api, resource: GroupResource, obj: JsonObject) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await api.create(resource, obj, namespace="default")
    return caught.value


@pytest.mark.parametrize(
    ("obj", "mistakes"),
    [
        (exactly(count=-1), {(f"{PATH}.requests[0].exactly.count", "Invalid")}),
        (exactly(allocationMode="All", count=2), {(f"{PATH}.requests[0].exactly.count", "Invalid")}),
        (exactly(deviceClassName=""), {(f"{PATH}.requests[0].exactly.deviceClassName", "Required")}),
        (claim(requests=[{"name": "a"}]), {(f"{PATH}.requests[0]", "Required")}),
        (
            claim(requests=[{"name": "a", "firstAvailable": [{"name": "B", "deviceClassName": "x"}]}]),
            {(f"{PATH}.requests[0].firstAvailable[0].name", "Invalid")},
        ),
        (claim(constraints=[{"requests": ["gpu"]}]), {(f"{PATH}.constraints[0].matchAttribute", "Required")}),
        (claim(constraints=[{"matchAttribute": "a"}]), {(f"{PATH}.constraints[0].matchAttribute", "Invalid")}),
        (
            claim(constraints=[{"matchAttribute": "a.b/c", "requests": ["gpu/x"]}]),
            {(f"{PATH}.constraints[0].requests[0]", "Invalid")},
        ),
        (claim(config=[{}]), {(f"{PATH}.config[0].opaque", "Required")}),
        (claim(config=[{"opaque": {"driver": "a"}}]), {(f"{PATH}.config[0].opaque.parameters", "Required")}),
    ],
)
async def test_what_a_real_server_refuses_is_refused(api: Api, obj: JsonObject, mistakes: set[tuple[str, str]]) -> None:
    assert mistakes_of(await refusal(api, CLAIMS, obj)) == mistakes


@pytest.mark.parametrize(
    "obj",
    [
        exactly(allocationMode="All"),
        exactly(selectors=[{"cel": {"expression": "true"}}]),
        claim(requests=[{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "x"}]}]),
        claim(constraints=[{"matchAttribute": "a.b/c"}]),
    ],
)
async def test_a_sound_claim_that_would_wait_for_ever_is_answered_with_501(api: Api, obj: JsonObject) -> None:
    assert (await refusal(api, CLAIMS, obj)).code == 501


async def test_a_count_of_zero_is_the_default(api: Api) -> None:
    made = await api.create(CLAIMS, exactly(count=0), namespace="default")
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


async def test_a_template_gives_its_claims_nothing_but_labels_and_annotations(api: Api) -> None:
    metadata = {"name": "x", "labels": {"a b": "c"}}
    template = {"metadata": {"name": "t"}, "spec": {"metadata": metadata, "spec": claim()["spec"]}}
    expected = {("spec.metadata.name", "Forbidden"), ("spec.metadata.labels", "Invalid")}
    assert mistakes_of(await refusal(api, TEMPLATES, template)) == expected
