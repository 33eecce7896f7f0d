"""The one way in which quantities and times are printed."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.schema import builtin_schema
from trainmaster.runtime.jsontree import JsonObject


def _pod(resources: JsonObject) -> JsonObject:
    return {"spec": {"containers": [{"name": "a", "resources": resources}]}}


@pytest.mark.parametrize(("given", "printed"), [("0.5", "500m"), (0.5, "500m"), (3, "3"), ("2048Ki", "2Mi")])
def test_quantities_get_their_canonical_form(given: Any, printed: str) -> None:
    pod = _pod({"limits": {"memory": given}})
    builtin_schema("io.k8s.api.core.v1.Pod").canonicalize(pod)
    assert pod == _pod({"limits": {"memory": printed}})


def test_a_wrong_quantity_is_named_by_its_path() -> None:
    with pytest.raises(ValueError, match=r"^spec\.containers\[0\]\.resources\.limits\.cpu: "):
        builtin_schema("io.k8s.api.core.v1.Pod").canonicalize(_pod({"limits": {"cpu": "many"}}))


def test_times_are_in_utc_and_those_of_leases_have_microseconds() -> None:
    lease = {"spec": {"renewTime": "2026-01-01T01:00:00.25+01:00", "holderIdentity": "2026-01-01T01:00:00Z"}}
    builtin_schema("io.k8s.api.coordination.v1.Lease").canonicalize(lease)
    assert lease["spec"] == {"renewTime": "2026-01-01T00:00:00.250000Z", "holderIdentity": "2026-01-01T01:00:00Z"}
    job: JsonObject = {"status": {"startTime": "2026-01-01T01:00:00.25+01:00"}}
    builtin_schema("io.k8s.api.batch.v1.Job").canonicalize(job)
    assert job["status"]["startTime"] == "2026-01-01T00:00:00Z"
