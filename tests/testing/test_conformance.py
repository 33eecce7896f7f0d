"""The part of the conformance suite that takes a cluster finds what it is there for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.filters.authorization import VARIABLE
from trainmaster.runtime.sdk import Desired, Info, Listers, TrainJob, Watch
from trainmaster.runtime.testing import Subject
from trainmaster.testing.conformance import survives_definitions, uses_its_rights

QUEUES = Watch("acme.dev/v1", "Queue", "queues", writes=True, optional=True)


class Queued:
    """Builds an object of a kind of its own, for the runtimes that ask for it."""

    name = "queued"

    def applies_to(self, info: Info) -> bool:
        return "queued" in info.labels

    def watch_extension(self) -> Iterable[Watch]:
        return [QUEUES]

    def build(self, job: TrainJob) -> Iterator[Desired]:
        yield Desired({"apiVersion": "acme.dev/v1", "kind": "Queue", "metadata": {"name": job.metadata.name}})


def subject(plugin: Any) -> Subject:
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "train:1"}]}}},
        },
    }
    template = {"metadata": {"labels": {"queued": "yes"}}, "spec": {"replicatedJobs": [node]}}
    return Subject(plugin, runtime={"template": template})


def test_a_plugin_that_conforms_passes(tmp_path: Path) -> None:
    assert not list(uses_its_rights(subject(Queued), tmp_path / "rights"))
    assert not list(survives_definitions(subject(Queued), tmp_path / "definitions"))


def test_an_object_that_it_has_no_right_to_write_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The comparison of all requests of a run would find it, too.
    monkeypatch.delenv(VARIABLE)

    class Undeclared(Queued):
        def build(self, job: TrainJob) -> Iterator[Desired]:
            yield Desired({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": job.metadata.name}})

    (problem, *_) = uses_its_rights(subject(Undeclared), tmp_path, patience=1)
    assert "TrainJob demo-0 does not become a Secret" in problem.what
    assert "declared in watch_extension" in problem.do


def test_rights_that_nothing_uses_are_found(tmp_path: Path) -> None:
    class Greedy(Queued):
        def watch_extension(self) -> Iterable[Watch]:
            return [QUEUES, Watch("v1", "Secret", "secrets", writes=True)]

    told = [problem.what for problem in uses_its_rights(subject(Greedy), tmp_path)]
    assert told == [
        "it asks for the right to create secrets, and nothing uses it",
        "it asks for the right to patch secrets, and nothing uses it",
    ]


def test_a_plugin_may_declare_that_all_jobs_wait_for_its_kind(tmp_path: Path) -> None:
    class Demanding(Queued):
        applies_to = None  # type: ignore[assignment]  # it serves all

        def watch_extension(self) -> Iterable[Watch]:
            return [replace(QUEUES, optional=False)]

    assert not list(survives_definitions(subject(Demanding), tmp_path))


@pytest.mark.nightly
def test_a_plugin_that_holds_up_the_jobs_of_others_is_found(tmp_path: Path) -> None:
    class Selfish(Queued):
        def applies_to(self, info: Info) -> bool:
            return True

        def build(self, job: TrainJob, listers: Listers | None = None) -> Iterator[Desired]:
            assert listers is not None
            if not list(listers.list("acme.dev/v1", "Queue")) and "other" in job.metadata.name:
                raise LookupError("no queue")
            yield from super().build(job)

    (first, *_) = survives_definitions(subject(Selfish), tmp_path, patience=1)
    assert "a TrainJob of another runtime is not built before the cluster serves Queue" in first.what
    assert "LookupError: no queue" in first.what
    assert "optional=True" in first.do
