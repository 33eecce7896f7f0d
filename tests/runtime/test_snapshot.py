"""The runtime snapshot: what is frozen, when it is refused, and what is remembered of one resolution."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support.generated import ruin, runtimes, trainjobs
from support.objects import runtime, runtime_object, trainjob
from support.resolutions import FRAMEWORK

from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, TrainingRuntime
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.quantity import Quantity, canonical
from trainmaster.runtime.resolver import new_info, resolve
from trainmaster.runtime.snapshot import SnapshotInvalid, build_snapshot, decode_snapshot, encode_runtime
from trainmaster.runtime.yamltext import load_yaml


def snapshot(text: str | None = None) -> JsonObject:
    return build_snapshot(trainjob(), encode_runtime(runtime_object(policy={"torch": {}})) if text is None else text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9).map(float) | st.text(max_size=20),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=8), below, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("policy", ["mlPolicy", "podGroupPolicy"])
@given(config=st.dictionaries(st.text(max_size=8), JSON, max_size=4))
@example(config={"stages": [], "labels": {}, "region": None, "deep": [{"annotations": {}, "none": None}], "x": 1.0})
def test_what_a_plugin_is_told_is_frozen_as_it_is(policy: str, config: JsonObject) -> None:
    """What is blank is not there in an API that says so; what it means to a plugin only the plugin knows."""
    runtime = runtime_object()
    runtime["spec"][policy] = {"numNodes": None, "custom": {"name": "acme", "config": config}}
    spec = decode_snapshot(snapshot(encode_runtime(runtime)), trainjob()).spec
    frozen = spec.ml_policy if policy == "mlPolicy" else spec.pod_group_policy
    assert frozen is not None
    assert frozen.custom is not None
    assert (frozen.custom.name, frozen.custom.config) == ("acme", config)


@pytest.mark.defect("U15")
def test_noise_of_the_server_is_left_out() -> None:
    """U15: managedFields and versions say nothing about the runtime and fill the ConfigMap."""
    noisy = runtime_object()
    noisy["metadata"] |= {
        "uid": "u",
        "resourceVersion": "5",
        "managedFields": [{}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"},
    }
    frozen = load_yaml(encode_runtime(noisy))
    assert frozen["metadata"] == {**runtime_object()["metadata"], "annotations": {"note": "kept"}}


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


@pytest.mark.parametrize("data", [None, "x", {}])
def test_a_snapshot_with_odd_data_is_refused(data: Any) -> None:
    with pytest.raises(SnapshotInvalid, match='missing "runtime" data key'):
        decode_snapshot({**snapshot(), "data": data}, trainjob())


def test_somebody_elses_config_map_is_refused() -> None:
    config_map = snapshot()
    config_map["metadata"]["ownerReferences"][0]["uid"] = "another"
    with pytest.raises(SnapshotInvalid, match="owned by another object") as caught:
        decode_snapshot(config_map, trainjob())
    assert "kubectl delete configmap -n team demo-runtime-snapshot)" in str(caught.value)


@pytest.mark.parametrize("length", [1, 70_000], ids=["usual", "long"])
def test_trainjobs_of_one_runtime_share_what_was_read_of_it(length: int) -> None:
    text = encode_runtime({**runtime_object(), "metadata": {"name": "rt", "annotations": {"a": "x" * length}}})
    first, second = trainjob(), trainjob("other")
    assert decode_snapshot(build_snapshot(first, text), first) is decode_snapshot(build_snapshot(second, text), second)


def test_the_text_is_written_once_for_a_version_of_a_runtime() -> None:
    first = runtime_object()
    first["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    text = encode_runtime(first)
    assert encode_runtime(copy_tree(first)) is text
    first["spec"]["mlPolicy"] = {"numNodes": 7}
    first["metadata"]["resourceVersion"] = "2"
    assert load_yaml(encode_runtime(first))["spec"]["mlPolicy"] == {"numNodes": 7}


def test_a_snapshot_in_json_is_read() -> None:
    """As versions before this one wrote it."""
    text = orjson.dumps(load_yaml(encode_runtime(runtime_object(policy={"numNodes": 3}))), option=orjson.OPT_INDENT_2)
    decoded = decode_snapshot(snapshot(text.decode()), trainjob())
    assert decoded.spec.ml_policy is not None
    assert decoded.spec.ml_policy.num_nodes == 3


def bomb(levels: int) -> str:
    """A runtime with a few hundred bytes of merge keys."""
    lines = [
        "apiVersion: trainer.kubeflow.org/v1alpha1",
        "kind: TrainingRuntime",
        "metadata: {name: rt}",
        "l0: &l0 {k: v}",
    ]
    lines += [f"l{n}: &l{n} {{<<: [{','.join([f'*l{n - 1}'] * 9)}]}}" for n in range(1, levels + 1)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (bomb(30), "anchors and aliases have no place"),
        ("apiVersion: v1\nspec:\n  <<: {a: 1}", "merge keys"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "nested more than 150 levels deep"),
        ("a:\n" + "- b\n" * 60_000, "more than 50000 values"),
    ],
)
def test_what_expands_too_much_is_refused_for_good(text: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SnapshotInvalid, match=reason):
        decode_snapshot(snapshot(text), trainjob())
    monkeypatch.delattr("trainmaster.runtime.snapshot.load_plain_yaml")
    with pytest.raises(SnapshotInvalid, match=reason):
        decode_snapshot(snapshot(text), trainjob())


_POLICIES: st.SearchStrategy[JsonObject | None] = st.sampled_from(["torch", "jax", "xgboost", "mpi", "flux"]).map(
    lambda name: {name: {}}
)
_OWN = Framework(load_plugins(disabled=frozenset({"mpi", "flux"})))


@given(st.lists(trainjobs(), min_size=2, max_size=3), runtimes(_POLICIES))
def test_trainjobs_of_one_runtime_are_resolved_as_if_each_were_alone(raw_jobs: list[Any], raw: JsonObject) -> None:
    """Whatever is done to what has come out before."""
    for each in raw_jobs:
        each["spec"]["runtimeRef"]["name"] = raw["metadata"]["name"]
    alone = [_resolved(each, parse_runtime(orjson.loads(orjson.dumps(raw)))) for each in raw_jobs]
    shared = parse_runtime(raw)
    assert [_resolved(each, shared) for each in (*raw_jobs, *raw_jobs)] == [*alone, *alone]


@given(st.lists(trainjobs(), min_size=4, max_size=8), runtimes(_POLICIES))
def test_threads_may_resolve_at_once(raw_jobs: list[Any], raw: JsonObject) -> None:
    """Plans are made in threads while webhooks are answered in others."""
    for each in raw_jobs:
        each["spec"]["runtimeRef"]["name"] = raw["metadata"]["name"]
    alone = [_resolved(each, parse_runtime(raw)) for each in raw_jobs]
    shared = parse_runtime(raw)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda each: _resolved(each, shared), raw_jobs)) == alone


def _resolved(raw_job: JsonObject, on: TrainingRuntime | ClusterTrainingRuntime) -> list[Any]:
    """Resolve, note what came out as bytes, and ruin all of it that can be changed."""
    job = parse_trainjob(orjson.loads(orjson.dumps(raw_job)))
    try:
        found = resolve(job, on, FRAMEWORK)
    except PluginFailed as error:
        return [str(error)]
    objects = [each.object for each in found.objects]
    noted = [orjson.dumps(each) for each in (*objects, found.info.template, found.info.runtime_template)]
    ruin([objects, found.info.template, found.info.runtime_template, found.info.labels, found.info.annotations])
    assert job == parse_trainjob(raw_job)  # plugins of ours get the very TrainJob
    return noted


def test_plugins_of_ours_get_the_trainjob_itself_and_others_a_copy() -> None:
    """To copy it costs more than to build it; who else is there may change what all are given."""
    seen: list[Any] = []

    class Other:
        name = "other"

        def enforce_ml_policy(self, job: Any) -> None:
            job.metadata.labels["changed"] = "yes"
            seen.append(job)

        def status(self, job: Any) -> None:
            job.metadata.labels["changed"] = "yes"
            seen.append(job)

    job = trainjob()
    with_other = Framework([*_OWN.plugins(), Other()])
    resolve(job, runtime(), with_other)
    with_other.status(job, NO_LISTERS)
    assert "changed" not in job.metadata.labels
    assert len(seen) == 2
    assert all(each is not job for each in seen)


def test_equal_amounts_keep_the_notation_in_which_each_was_written() -> None:
    """1Ki equals 1024, and True equals 1; what is remembered of the one is nothing of the other."""
    for _ in range(2):
        assert [canonical(value) for value in ("1Ki", "1024", 1024, 1024.0)] == ["1Ki", "1024", "1024", "1024"]
        assert Quantity.parse("1Ki").notation != Quantity.parse("1024").notation


def test_a_template_of_a_runtime_stays_as_it_is_read() -> None:
    on = runtime(policy={"torch": {}})
    before = orjson.dumps(on.to_json())
    ruin([new_info(trainjob(), on).template, new_info(trainjob(), on).runtime_template])
    assert orjson.dumps(on.to_json()) == before
