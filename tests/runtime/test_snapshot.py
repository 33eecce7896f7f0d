"""The runtime snapshot: what is frozen, and when it is refused."""

from __future__ import annotations

import orjson
import pytest
import yaml
from support.objects import runtime_object, trainjob

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import SnapshotInvalid, build_snapshot, decode_snapshot, encode_runtime


def snapshot(text: str | None = None) -> JsonObject:
    return build_snapshot(trainjob(), encode_runtime(runtime_object(policy={"torch": {}})) if text is None else text)


def test_a_snapshot_round_trips() -> None:
    decoded = decode_snapshot(snapshot(), trainjob())
    assert (decoded.kind, decoded.metadata.name) == ("TrainingRuntime", "rt")
    assert decoded.spec.ml_policy is not None
    assert decoded.spec.ml_policy.torch is not None


def test_u15_noise_of_the_server_is_left_out() -> None:
    """U15: managedFields and versions say nothing about the runtime and fill the ConfigMap."""
    noisy = runtime_object()
    noisy["metadata"] |= {
        "uid": "u",
        "resourceVersion": "5",
        "managedFields": [{}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"},
    }
    frozen = orjson.loads(encode_runtime(noisy))
    assert frozen["metadata"] == {"name": "rt", "namespace": "team", "annotations": {"note": "kept"}}


def test_a_snapshot_of_the_go_controller_is_read() -> None:
    """It is block YAML with everything the server knows, times included."""
    runtime = runtime_object(policy={"numNodes": 3})
    runtime["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    text = yaml.safe_dump(runtime).replace("'2026-01-01T00:00:00Z'", "2026-01-01T00:00:00Z")
    assert "creationTimestamp: 2026-01-01T00:00:00Z" in text
    decoded = decode_snapshot(snapshot(text), trainjob())
    assert decoded.spec.ml_policy is not None
    assert decoded.spec.ml_policy.num_nodes == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not: [a, runtime", "unable to unmarshal the snapshot"),
        ("just text", "unable to unmarshal the snapshot: must be an object, got str"),
        ("{}", "unable to unmarshal the snapshot"),
        (encode_runtime(runtime_object() | {"metadata": {"name": "other"}}), "refers to the wrong runtime"),
    ],
)
def test_a_damaged_snapshot_is_refused(text: str, message: str) -> None:
    with pytest.raises(SnapshotInvalid, match=f"^invalid runtime snapshot: .*{message}"):
        decode_snapshot(snapshot(text), trainjob())


def test_a_snapshot_without_its_key_is_refused() -> None:
    config_map = snapshot()
    del config_map["data"]["runtime"]
    with pytest.raises(SnapshotInvalid, match='missing "runtime" data key'):
        decode_snapshot(config_map, trainjob())


def test_somebody_elses_config_map_is_refused() -> None:
    config_map = snapshot()
    config_map["metadata"]["ownerReferences"][0]["uid"] = "another"
    with pytest.raises(SnapshotInvalid, match="owned by another object") as caught:
        decode_snapshot(config_map, trainjob())
    assert "kubectl delete configmap -n team demo-runtime-snapshot)" in str(caught.value)


def test_trainjobs_of_one_runtime_share_what_was_read_of_it() -> None:
    text = encode_runtime(runtime_object())
    first, second = trainjob(), trainjob("other")
    assert decode_snapshot(build_snapshot(first, text), first) is decode_snapshot(build_snapshot(second, text), second)


def test_one_of_unusual_length_is_read_each_time() -> None:
    text = encode_runtime({**runtime_object(), "metadata": {"name": "rt", "annotations": {"a": "x" * 70_000}}})
    job = trainjob()
    snapshot = build_snapshot(job, text)
    assert decode_snapshot(snapshot, job) is not decode_snapshot(snapshot, job)
