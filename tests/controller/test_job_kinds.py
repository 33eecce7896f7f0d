"""The kinds of jobs that are served, and the files that their options name."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.controller.configuration import Configuration, TrainingOperator
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.plugins.jobs.initcontainer import InitContainerOptions
from trainmaster.runtime.framework import PluginInvalid


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
