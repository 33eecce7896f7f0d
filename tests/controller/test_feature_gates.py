"""What a process serves: feature gates, its namespace, kinds of jobs, and what to do about kinds that lack."""

from pathlib import Path

import pytest

from trainmaster.controller import feature_gates
from trainmaster.controller.configuration import Configuration, TrainingOperator
from trainmaster.controller.feature_gates import FeatureSpec, UnknownFeature, enabled_features, parse_feature_gates
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.operator_namespace import operator_namespace
from trainmaster.controller.resources import JOBSETS, TRAINJOBS, watched_resource
from trainmaster.plugins.jobs.initcontainer import InitContainerOptions
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.listers import Watch


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        feature_gates,
        "FEATURES",
        {"New": FeatureSpec("ALPHA", default=False), "Old": FeatureSpec("BETA", default=True)},
    )


def test_the_command_line_form() -> None:
    assert parse_feature_gates("A=true, B=False,") == {"A": True, "B": False}
    for text in ("A", "A=1", "A=yes"):
        with pytest.raises(UnknownFeature, match="write it as Name=true or Name=false"):
            parse_feature_gates(text)


@pytest.mark.usefixtures("gates")
def test_later_sources_win() -> None:
    """A stage switches its gates, but not those that are named."""
    assert enabled_features({"New": True}, {"New": False}) == {"New": False, "Old": True}
    assert enabled_features({"AllAlpha": True, "AllBeta": False, "Old": True}) == {"New": True, "Old": True}


def test_an_unknown_gate_is_an_error() -> None:
    with pytest.raises(UnknownFeature, match="unknown feature gate 'Nwe'; known are: "):
        enabled_features({"Nwe": True})


def test_the_pod_or_a_deployment_of_the_training_operator_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a cluster it is the namespace of the original."""
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.delenv("MY_POD_NAMESPACE", raising=False)
    assert operator_namespace() == "kubeflow-system"
    monkeypatch.setenv("MY_POD_NAMESPACE", "kubeflow")
    assert operator_namespace() == "kubeflow"
    monkeypatch.setenv("POD_NAMESPACE", "trainer")
    assert operator_namespace() == "trainer"


def with_options(**options: str) -> Configuration:
    training_operator = TrainingOperator(enable_scheme=["PyTorchJob"], options={"pytorchjob": {**options}})
    return Configuration(training_operator=training_operator)


def test_the_text_of_a_file_is_the_option_of_its_name(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("- {name: wait, image: busybox}")
    (kind,) = job_kinds(with_options(initContainerTemplateFile=str(template), initContainerImage="busybox"))
    assert isinstance(kind.options, InitContainerOptions)
    assert kind.options.init_container_template == "- {name: wait, image: busybox}"
    assert kind.options.init_container_image == "busybox"


def test_a_file_that_cannot_be_an_option_is_named(tmp_path: Path) -> None:
    missing, binary, mapping = (tmp_path / name for name in ("nowhere.yaml", "binary", "template.yaml"))
    with pytest.raises(PluginInvalid) as caught:
        job_kinds(with_options(initContainerTemplateFile=str(missing)))
    assert str(caught.value) == (
        f"trainingOperator.options.pytorchjob.initContainerTemplateFile: cannot read {missing}: "
        "No such file or directory; correct the path, or leave it out"
    )
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(PluginInvalid, match=r"cannot read .*: 'utf-8' codec can't decode"):
        job_kinds(with_options(initContainerTemplateFile=str(binary)))
    mapping.write_text("name: no list")
    with pytest.raises(PluginInvalid, match="initContainerTemplate"):
        job_kinds(with_options(initContainerTemplateFile=str(mapping)))
    with pytest.raises(PluginInvalid, match=r"initContainerTemplate is given as well; leave out one of the two"):
        job_kinds(with_options(initContainerTemplate="[]", initContainerTemplateFile=str(mapping)))


def test_switched_off_there_are_none() -> None:
    assert job_kinds(Configuration(training_operator=TrainingOperator(enabled=False))) == []


def gang(group: str) -> Resource:
    return watched_resource(Watch(f"{group}/v1", "PodGroup", plural="podgroups"))


@pytest.mark.parametrize(
    ("resource", "origin"),
    [
        (TRAINJOBS, ": trainmaster crds | kubectl apply --server-side -f -"),
        (JOBSETS, ": it comes with JobSet, https://jobset.sigs.k8s.io"),
        (gang("scheduling.x-k8s.io"), ": it comes with the scheduler plugins, https://scheduler-plugins.sigs.k8s.io"),
        (gang("scheduling.volcano.sh"), ": it comes with Volcano, https://volcano.sh"),
        (gang("team.example.com"), ", which comes with what that kind belongs to"),
    ],
)
def test_a_kind_of_a_definition_is_told_with_where_that_is(resource: Resource, origin: str) -> None:
    assert resource.remedy == f"install the CustomResourceDefinition {resource.name}{origin}"
