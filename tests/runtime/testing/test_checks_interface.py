"""What a plugin says of itself, objects that are refused, and rights that are not declared: what is wrong is found."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, field_serializer
from support.suites import CONFIG_MAP, GOOD, Good, failure, passes

from trainmaster.runtime.sdk import (
    ApplyWhen,
    Desired,
    Info,
    JsonObject,
    Listers,
    Rejected,
    SecretFile,
    TrainJob,
    Watch,
    upsert_env,
)


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

    assert "Config takes the unknown field" in failure("test_options_make_a_round_trip", Lax, **GOOD)


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
