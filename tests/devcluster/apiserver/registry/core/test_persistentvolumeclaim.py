"""PersistentVolumeClaims: what they may ask for, and what may change of it."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusals import mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS
from trainmaster.runtime.jsontree import JsonObject, copy_tree


def claim(size: str = "1Gi", **spec: Any) -> JsonObject:
    resources = {"requests": {"storage": size}}
    return {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}


@pytest.mark.parametrize(
    ("obj", "mistakes"),
    [
        (claim(accessModes=["ReadWriteOncePod", "ReadOnlyMany"]), {("spec.accessModes", "Forbidden")}),
        (claim(dataSourceRef={"kind": "Odd", "name": "x"}), {("spec.dataSourceRef", "Invalid")}),
        (claim(dataSource={"kind": "PersistentVolumeClaim"}), {("spec.dataSource.name", "Required")}),
        (
            claim(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            {("spec.selector.matchExpressions[0].values", "Required")},
        ),
    ],
)
async def test_what_a_real_server_refuses_is_refused(api: Api, obj: JsonObject, mistakes: set[tuple[str, str]]) -> None:
    with pytest.raises(StatusError) as caught:
        await api.create(PERSISTENT_VOLUME_CLAIMS, obj, namespace="default")
    assert mistakes - mistakes_of(caught.value) == set()


async def test_a_bound_claim_cannot_grow_without_a_class_that_could_do_it(api: Api) -> None:
    made = copy_tree(await api.create(PERSISTENT_VOLUME_CLAIMS, claim(), namespace="default"))
    made["spec"]["volumeName"] = "v"
    made = copy_tree(await api.update(PERSISTENT_VOLUME_CLAIMS, made))
    made["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    bound = copy_tree(await api.update(PERSISTENT_VOLUME_CLAIMS, made, subresource="status"))
    bound["spec"]["resources"]["requests"]["storage"] = "2Gi"
    with pytest.raises(StatusError, match="only dynamically provisioned pvc can be resized") as caught:
        await api.update(PERSISTENT_VOLUME_CLAIMS, bound)
    assert caught.value.code == 403
    bound["spec"]["resources"]["requests"]["storage"] = "1Mi"
    with pytest.raises(StatusError, match="field can not be less than status"):
        await api.update(PERSISTENT_VOLUME_CLAIMS, bound)
