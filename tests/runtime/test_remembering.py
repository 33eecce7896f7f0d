"""What resolving remembers of one TrainJob is not seen by another one, nor by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from support.generated import ruin, runtimes, trainjobs
from support.objects import runtime, trainjob
from support.resolutions import FRAMEWORK

from trainmaster.runtime.api import ClusterTrainingRuntime, TrainingRuntime, parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.quantity import Quantity, canonical
from trainmaster.runtime.resolver import new_info, resolve

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
