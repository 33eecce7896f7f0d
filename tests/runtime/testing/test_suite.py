"""The conformance suite finds what it is there for: a plugin that is broken on purpose fails each check."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, field_serializer

from trainmaster.runtime.framework import Framework
from trainmaster.runtime.sdk import (
    ApplyWhen,
    Desired,
    FieldError,
    Info,
    JsonObject,
    Listers,
    NoSuchIndex,
    Rejected,
    SecretFile,
    StatusReport,
    TrainJob,
    Watch,
    env_value,
    upsert_env,
)
from trainmaster.runtime.testing import CHECKS, KnownObjects, PluginConformance, Subject, nonconformities, trainjob

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


def test_a_plugin_that_conforms_passes_every_check() -> None:
    assert not nonconformities(Subject(Good, **GOOD))


def test_each_check_has_a_test_of_its_own() -> None:
    tests = [name for name in vars(PluginConformance) if name.startswith("test_")]
    elsewhere = {"uses_its_rights", "survives_definitions", "is_deterministic_across_processes"}
    assert {name.removeprefix("test_it_").removeprefix("test_") for name in tests} == {*CHECKS, *elsewhere}
    assert all(getattr(PluginConformance, name).__doc__ for name in tests)


def test_a_suite_without_a_plugin_says_so() -> None:
    suite = type("TestNothing", (PluginConformance,), {})
    with pytest.raises(AssertionError, match=r"TestNothing does not say which plugin it tests: give it `plugin = "):
        suite().test_it_is_deterministic()


@pytest.mark.parametrize("given", [lambda: Good(Good.Options()), Good(Good.Options())], ids=["function", "instance"])
def test_a_plugin_may_be_given_made_or_by_a_function(given: Any) -> None:
    passes("test_it_is_deterministic", given, runtime=GOOD["runtime"])


def test_a_plugin_may_be_given_by_its_entry_point() -> None:
    passes("test_it_is_deterministic", "jax", runtime={"mlPolicy": {"jax": {}}})


def test_a_misspelt_hook_is_found() -> None:
    class Misspelt:
        name = "misspelt"

        def enforce_mlpolicy(self, info: Info) -> None: ...

        def build(self) -> Iterable[Desired]:
            return ()

    told = failure("test_it_fits_the_interface", Misspelt)
    assert "enforce_mlpolicy is no extension point" in told
    assert "if enforce_ml_policy is meant" in told


def test_a_misspelt_place_is_found() -> None:
    class Lost(Good):
        after = ("Volcano",)

    told = failure("test_it_fits_the_interface", Lost)
    assert "names 'Volcano', and there is no plugin of that name" in told
    assert "write 'volcano'" in told


def test_options_that_it_does_not_take_are_found() -> None:
    told = failure("test_it_fits_the_interface", Good, options={"regoin": "us"})
    assert 'plugins.options.good.regoin: unknown field (did you mean "region"?)' in told


def test_a_sample_that_the_plugin_does_not_serve_is_found() -> None:
    told = failure("test_it_serves_its_sample", Good)
    assert "the plugin does not serve TrainJob demo-0" in told
    assert "give the suite a `runtime` with the policy" in told


def test_a_sample_that_cannot_be_built_is_found() -> None:
    class Strict(Good):
        def pre_build(self) -> None:
            raise Rejected("no room")

    told = failure("test_it_serves_its_sample", Strict, **GOOD)
    assert "TrainJob demo-0 cannot be built: no room" in told


def test_a_hook_that_fails_is_found() -> None:
    class Failing(Good):
        def pre_build(self) -> None:
            raise KeyError("region")

    told = failure("test_it_serves_its_sample", Failing, **GOOD)
    assert "plugin good failed in pre_build: KeyError: 'region'" in told
    assert "plugin good failed" in failure("test_it_is_idempotent", Failing, **GOOD)


def test_options_that_do_not_come_back_are_found() -> None:
    class Changing(Good):
        class Options(BaseModel):
            region: str = "eu"

            @field_serializer("region")
            def _shouted(self, region: str) -> str:
                return region + "!"

        options_model = Options  # type: ignore[assignment]  # another model

    told = failure("test_options_make_a_round_trip", Changing, **GOOD)
    assert "Options makes something else of what it prints itself: region is 'us!!' instead of 'us!'" in told


def test_the_path_of_a_secret_makes_a_round_trip(tmp_path: Path) -> None:
    """`trainmaster plugins show` describes options by the schema of their model."""

    class Keyed(Good):
        class Options(BaseModel):
            region: str = "eu"
            token: SecretFile
            other: SecretFile | None = None

        options_model = Options  # type: ignore[assignment]  # another model

    path = tmp_path / "token"
    path.write_text("secret")
    passes("test_options_make_a_round_trip", Keyed, options={"token": str(path)}, runtime=GOOD["runtime"])
    fields = Keyed.Options.model_json_schema()["properties"]
    assert fields["token"] == {"type": "string", "format": "path", "title": "Token"}


def test_a_model_that_cannot_be_described_is_found() -> None:
    class Opaque(Good):
        class Options(BaseModel):
            model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)
            region: str = "eu"
            handle: threading.Thread | None = None

        options_model = Options  # type: ignore[assignment]  # another model

    assert "Options has no JSON schema" in failure("test_options_make_a_round_trip", Opaque, **GOOD)


def test_a_model_that_takes_anything_is_found() -> None:
    class Lax(Good):
        class Config(BaseModel):
            model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
            zone: str = "a"

        ml_policy_config = Config  # type: ignore[assignment]  # another model

    told = failure("test_options_make_a_round_trip", Lax, **GOOD)
    assert "Config takes the unknown field" in told


def test_a_counter_is_found() -> None:
    numbers = itertools.count()

    class Counting(Good):
        def pre_build(self, info: Info) -> None:
            info.annotations["number"] = str(next(numbers))

    told = failure("test_it_is_deterministic", Counting, **GOOD)
    assert "becomes something else when the same plugin resolves it again" in told
    assert "JobSet demo-0.metadata.annotations.number" in told


def test_what_differs_after_a_restart_is_found() -> None:
    numbers = itertools.count()

    class Numbered(Good):
        def __init__(self, options: Good.Options) -> None:
            super().__init__(options)
            self._number = next(numbers)

        def pre_build(self, info: Info) -> None:
            info.labels["number"] = str(self._number)

    assert "a plugin that was made anew" in failure("test_it_is_deterministic", Numbered, **GOOD)


def test_what_is_written_once_may_be_random() -> None:
    numbers = itertools.count()

    class Random(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("v1", "Secret", "secrets", writes=True, creates_only=True)]

        def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{job.metadata.name}-key"}}
            yield Desired({**secret, "stringData": {"key": str(next(numbers))}}, ApplyWhen.ONCE)

    for test in ("test_it_is_deterministic", "test_it_is_idempotent", "test_it_declares_what_it_uses"):
        passes(test, Random, **GOOD)


def test_an_object_that_grows_is_found() -> None:
    class Growing(Good):
        def build(self, info: Info, job: TrainJob, listers: Listers | None = None) -> Iterator[Desired]:
            assert listers is not None
            name = f"{job.metadata.name}-good"
            there = listers.get("v1", "ConfigMap", job.metadata.namespace, name) or {"data": {"all": ""}}
            data = {"all": there["data"]["all"] + "more"}
            yield Desired({**CONFIG_MAP, "metadata": {"name": name}, "data": data})

    told = failure("test_it_is_idempotent", Growing, **GOOD)
    assert "ConfigMap demo-0-good is built in another way once all objects exist" in told
    assert "data.all is 'moremore' instead of 'more'" in told


@pytest.mark.parametrize("what", ["job", "config"])
def test_inputs_that_are_changed_are_found(what: str) -> None:
    class Greedy(Good):
        def pre_build(self, job: TrainJob, config: Good.Config) -> None:
            if what == "job":
                job.metadata.labels["mine"] = "yes"
            else:
                config.zone = "mine"

    told = failure("test_it_leaves_inputs_alone", Greedy, **GOOD)
    assert f"pre_build changes `{what}`" in told


def test_an_info_that_is_changed_while_it_is_asked_about_is_found() -> None:
    class Nosy(Good):
        def applies_to(self, info: Info) -> bool:
            info.labels["asked"] = "yes"
            return True

    assert "applies_to changes `info`: labels.asked is new" in failure("test_it_leaves_inputs_alone", Nosy, **GOOD)


def test_a_plugin_that_remembers_the_suspension_is_found() -> None:
    class Sticky(Good):
        def build(self, info: Info, job: TrainJob, listers: Listers | None = None) -> Iterator[Desired]:
            assert listers is not None
            name = f"{job.metadata.name}-good"
            there = listers.get("v1", "ConfigMap", job.metadata.namespace, name)
            mode = there["data"]["mode"] if there else "paused" if job.spec.suspend else "running"
            yield Desired({**CONFIG_MAP, "metadata": {"name": name}, "data": {"mode": mode}})

    told = failure("test_it_survives_suspension", Sticky, **GOOD)
    assert "becomes something else if it was suspended before" in told
    assert "data.mode is 'paused' instead of 'running'" in told


def test_a_workload_that_does_not_stop_is_found() -> None:
    class Unstoppable(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("batch/v1", "Job", "jobs", writes=True, workload=True)]

        def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
            yield Desired(
                {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.metadata.name}, "spec": {}}
            )

    told = failure("test_it_survives_suspension", Unstoppable, **GOOD)
    assert "the workload batch/v1 Job demo-0 is the same whether spec.suspend is set or not" in told


def test_what_a_snapshot_does_not_keep_is_found() -> None:
    class Ordered(Good):
        def pre_build(self, info: Info) -> None:
            metadata = info.runtime_template["replicatedJobs"][0]["template"]["metadata"]
            info.annotations["order"] = ",".join(metadata["labels"])

    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"z": "1", "a": "2"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "train:1"}]}}},
        },
    }
    template = {"spec": {"replicatedJobs": [node]}}
    told = failure(
        "test_it_survives_the_snapshot", Ordered, **{**GOOD, "runtime": {**GOOD["runtime"], "template": template}}
    )
    assert "becomes something else of its runtime's snapshot" in told
    assert "annotations.order" in told


def test_what_needs_the_cluster_is_found() -> None:
    class Dependent(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("acme.dev/v1", "Queue", "queues")]

        def build(self, info: Info, job: TrainJob, listers: Listers | None = None) -> Iterator[Desired]:
            assert listers is not None
            queue: Any = listers.get("acme.dev/v1", "Queue", "team", "research")
            info.labels["queue"] = queue["spec"]["rank"]
            return iter(())

    queue = {"apiVersion": "acme.dev/v1", "kind": "Queue", "metadata": {"name": "research", "namespace": "team"}}
    objects = [{**queue, "spec": {"rank": "1"}}]
    passes("test_it_serves_its_sample", Dependent, **GOOD, objects=objects)
    told = failure("test_it_works_without_a_cluster", Dependent, **GOOD, objects=objects)
    assert "in an empty cluster: plugin good failed in build: TypeError" in told


def test_a_field_that_it_takes_for_granted_is_found() -> None:
    class Sure(Good):
        def pre_build(self, info: Info, job: TrainJob) -> None:
            assert info.trainer_container is not None

    told = failure("test_it_stands_absent_fields", Sure, **GOOD)
    assert "plugin good failed in pre_build: AssertionError" in told
    assert "the runtime without spec.template" in told


@pytest.mark.parametrize(
    ("read", "value", "told_of"),
    [
        (lambda marks: marks["acme.io/team"], "4", "without metadata.{}[acme.io/team]: "),
        (lambda marks: int(marks.get("acme.io/team") or 0), "4", "with metadata.{}[acme.io/team] "),
    ],
)
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_a_label_or_annotation_that_it_takes_for_granted_is_found(
    field: str, read: Any, value: str, told_of: str
) -> None:
    class Sure(Good):
        def pre_build(self, job: TrainJob) -> None:
            read(getattr(job.metadata, field))

    marks: dict[str, Any] = {field: {"acme.io/team": value}}
    told = failure("test_it_stands_absent_fields", Sure, **{**GOOD, "jobs": [trainjob(**marks)]})
    assert f"the TrainJob {told_of.format(field)}" in told


def test_an_object_of_others_that_it_takes_for_granted_is_found() -> None:
    class Sure(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [Watch("acme.dev/v1", "Queue", "queues", jobs=lambda obj: [("team", obj["spec"]["job"])])]

    told = failure("test_it_stands_odd_objects", Sure, **GOOD)
    assert "Queue (fields: apiVersion, kind, metadata)" in told
    assert "plugin good failed in Watch.jobs: KeyError: 'spec'" in told


def test_an_index_that_takes_fields_for_granted_is_found() -> None:
    class Sure(Good):
        def watch_extension(self) -> Iterable[Watch]:
            return [
                Watch("acme.dev/v1", "Queue", "queues", indexes={"good-by-rank": lambda obj: [obj["spec"]["rank"]]})
            ]

    told = failure("test_it_stands_odd_objects", Sure, **GOOD)
    assert "Queue (fields: apiVersion, kind, metadata): plugin good failed in " in told
    assert "KeyError: 'spec'" in told


def test_a_workload_without_a_status_that_it_takes_for_granted_is_found() -> None:
    class Sure(Good):
        def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
            there = listers.get("v1", "ConfigMap", job.metadata.namespace, f"{job.metadata.name}-good")
            return StatusReport([each for each in there["status"]["conditions"] if each]) if there else None

    told = failure("test_it_stands_odd_objects", Sure, **GOOD)
    assert "a workload whose status is {}: plugin good failed in status: KeyError: 'conditions'" in told


class _Watching(Good):
    watches: ClassVar[list[Watch]] = []

    def watch_extension(self) -> Iterable[Watch]:
        return self.watches


MAPS = Watch("v1", "ConfigMap", "configmaps", writes=True)


@pytest.mark.parametrize(
    ("watches", "expected"),
    [
        ([], "build returns ConfigMap (v1), which watch_extension does not declare with writes=True"),
        (
            [Watch("v1", "ConfigMap", "configmaps", writes=True, creates_only=True)],
            "is declared with creates_only=True, but not built with ApplyWhen.ONCE",
        ),
        ([MAPS, Watch("v1", "Secret", "secrets", writes=True)], "with writes=True, but no sample has one built"),
        ([MAPS, Watch("v1", "Node", "nodes", False)], "no sample has it read, built or mapped"),
    ],
    ids=["undeclared", "not-once", "not-built", "not-read"],
)
def test_rights_that_are_not_declared_or_not_used_are_found(watches: list[Watch], expected: str) -> None:
    plugin = type("Declaring", (_Watching,), {"watches": watches})
    assert expected in failure("test_it_declares_what_it_uses", plugin, **GOOD)


def test_a_kind_that_is_read_without_being_declared_is_found() -> None:
    class Reading(Good):
        def enforce_ml_policy(self, info: Info) -> None:
            info.listers.get("v1", "Node", None, "one")

    told = failure("test_it_declares_what_it_uses", Reading, **GOOD)
    assert "it asks listers for Node (v1), which watch_extension does not declare" in told


def test_a_kind_that_is_only_created_without_saying_so_is_found() -> None:
    class Once(Good):
        def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
            yield Desired({**CONFIG_MAP, "metadata": {"name": job.metadata.name}}, ApplyWhen.ONCE)

    assert "but its Watch lacks creates_only=True" in failure("test_it_declares_what_it_uses", Once, **GOOD)


def test_what_is_read_while_an_object_is_mapped_is_used() -> None:
    """By an index of another kind, for instance; without an object of the sample nobody would know."""

    def jobs(obj: JsonObject, listers: Listers) -> Iterator[tuple[str, str]]:
        for job in listers.by_index("v1", "Pod", "good-by-node", obj["metadata"]["name"]):
            yield job["metadata"]["namespace"], job["metadata"]["name"]

    class Mapping(Good):
        def watch_extension(self) -> Iterable[Watch]:
            yield from super().watch_extension()
            yield Watch("v1", "Node", "nodes", namespaced=False, jobs=jobs)
            yield Watch("v1", "Pod", "pods", indexes={"good-by-node": lambda pod: [pod["spec"]["nodeName"]]})

    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    passes("test_it_declares_what_it_uses", Mapping, **GOOD, objects=[node])
    assert "declares Pod (v1), but no sample has it read" in failure("test_it_declares_what_it_uses", Mapping, **GOOD)


class _Building(Good):
    obj: ClassVar[JsonObject] = {}

    def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
        metadata = {**self.obj["metadata"], "name": self.obj["metadata"]["name"].format(job.metadata.name)}
        yield Desired({**self.obj, "metadata": metadata})


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (
            {**CONFIG_MAP, "metadata": {"name": "{}/good"}},
            "the name of a ConfigMap, 'demo-0/good', may not contain '/'",
        ),
        ({**CONFIG_MAP, "metadata": {"name": "{}_x"}}, "ConfigMap demo-0_x: its name a lowercase RFC 1123"),
        ({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "{}-x"}}, "its name must be no more than 63"),
        ({**CONFIG_MAP, "metadata": {"name": ""}}, "without apiVersion, kind and metadata.name"),
        ({**CONFIG_MAP, "metadata": {"name": "{}", "namespace": "other"}}, "is in namespace 'other', not in that of"),
        ({**CONFIG_MAP, "metadata": {"name": "{}", "labels": {"n": 1}}}, "label 'n': its value must be a text, not 1"),
        ({**CONFIG_MAP, "metadata": {"name": "{}", "labels": {"a b": "1"}}}, "label 'a b': its key name part must"),
        ({**CONFIG_MAP, "metadata": {"name": "{}"}, "status": {}}, "has metadata.generateName or status"),
    ],
    ids=["slash", "underline", "long", "nameless", "namespace", "label", "key", "status"],
)
def test_objects_that_the_api_server_refuses_are_found(obj: JsonObject, expected: str) -> None:
    plugin = type("Building", (_Building,), {"obj": obj})
    assert expected in failure("test_it_builds_valid_objects", plugin, **GOOD)


def test_pods_that_the_api_server_refuses_are_found() -> None:
    class Numeric(Good):
        def pre_build(self, info: Info, job: TrainJob) -> None:
            (pods,) = info.pod_sets
            upsert_env(pods.pod_spec["containers"][0], [{"name": "RANKS", "value": 3}])
            pods.pod_template["metadata"]["labels"] = {"job": f"{job.metadata.name}-of-mine"}

    told = failure("test_it_builds_valid_objects", Numeric, **GOOD)
    assert "pods of node: the variable 'RANKS' of container node is 3" in told
    assert "pods of node: label 'job': its value must be no more than 63 bytes" in told


def test_a_loop_without_an_end_is_found() -> None:
    class Endless(Good):
        def pre_build(self) -> None:
            number = 0
            while True:
                number += 1

    told = failure("test_it_stays_in_its_budget", Endless, **GOOD)
    assert "pre_build takes more than 1,000,000 steps (lines of Python) in one call" in told


def test_a_call_that_takes_too_much_memory_is_found() -> None:
    class Huge(Good):
        def pre_build(self) -> None:
            self.kept = bytearray(3 * 1024 * 1024)

    told = failure("test_it_stays_in_its_budget", Huge, **GOOD, most_memory=1024 * 1024)
    assert "a call holds 3,1" in told
    assert "more than 1,048,576" in told


def test_what_stays_behind_of_each_job_is_found() -> None:
    class Hoarder(Good):
        def __init__(self, options: Good.Options) -> None:
            super().__init__(options)
            self._seen: list[TrainJob] = []

        def pre_build(self, job: TrainJob) -> None:
            self._seen.append(job)

    assert "bytes stay behind of each TrainJob" in failure("test_it_stays_in_its_budget", Hoarder, **GOOD)


def test_what_is_done_for_each_node_is_found() -> None:
    class Thorough(Good):
        def pre_build(self, info: Info) -> None:
            (pods,) = info.pod_sets
            for rank in range(pods.size):
                pods.pod_spec["subdomain"] = f"rank-{rank}"

    told = failure("test_it_stands_hostile_sizes", Thorough, **GOOD)
    assert "numNodes: 8,388,608: pre_build takes more than 1,000,000 steps" in told


def test_what_is_kept_for_each_node_is_found() -> None:
    class Listing(Good):
        def pre_build(self, info: Info, job: TrainJob) -> None:
            nodes = (job.spec.trainer.num_nodes if job.spec.trainer else None) or 1
            info.trainer_command = ["x" * nodes][:0]

    told = failure("test_it_stands_hostile_sizes", Listing, **GOOD)
    assert "with numNodes: 8,388,608 a call holds 8,3" in told
    assert "2,147,483,647" not in told


def test_a_limit_is_no_failure() -> None:
    class Limited(Good):
        def pre_build(self, job: TrainJob) -> None:
            if job.spec.trainer and (job.spec.trainer.num_nodes or 0) > 1000:
                raise Rejected("spec.trainer.numNodes: is more than 1000")

    passes("test_it_stands_hostile_sizes", Limited, **GOOD)


def test_a_job_that_is_kept_between_hooks_is_found() -> None:
    class Forgetful(Good):
        _job: TrainJob

        def enforce_ml_policy(self, job: TrainJob) -> None:
            self._job = job

        def pre_build(self, info: Info) -> None:
            info.annotations["job"] = self._job.metadata.name

    told = failure("test_it_stands_two_calls_at_once", Forgetful, **GOOD)
    assert "becomes something else while another one is resolved" in told
    assert "annotations.job" in told


def test_a_lock_of_a_plugin_holds_nobody_up() -> None:
    class Locked(Good):
        def __init__(self, options: Good.Options) -> None:
            super().__init__(options)
            self._lock = threading.Lock()

        def pre_build(self, info: Info, job: TrainJob) -> None:
            with self._lock:
                name = job.metadata.name
                info.annotations["job"] = name

    passes("test_it_stands_two_calls_at_once", Locked, **GOOD)


def test_the_subject_runs_among_the_built_in_plugins() -> None:
    framework = Subject(Good, **GOOD).framework()
    assert isinstance(framework, Framework)
    assert {"good", "torch", "jobset"} <= set(framework.names())


def test_known_objects_say_how_they_are_made() -> None:
    with pytest.raises(TypeError, match=r"KnownObjects\(a, b\), not a list"):
        KnownObjects([{}])  # type: ignore[arg-type]  # the fault
    with pytest.raises(NoSuchIndex) as raised:
        KnownObjects().by_index("v1", "ConfigMap", "acme-team", "robotics")
    assert raised.value.__notes__ == [
        "In a test: KnownObjects(..., watches=plugin.watch_extension()) has those of a plugin."
    ]
