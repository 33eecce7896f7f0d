"""`trainmaster render --explain`: the objects as `render` prints them, and who set each field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support.training import trainjob

from trainmaster.controller.cli import main
from trainmaster.controller.cli.manifests import built_in_names
from trainmaster.controller.cli.printers import to_yaml
from trainmaster.controller.cli.provenance import with_comments
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.provenance.steps import leaves, set_by
from trainmaster.runtime.yamltext import load_yaml

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ["examples/deepspeed", "examples/flux", "examples/torchtune", "examples/v1/mpijob.yaml"]


def render(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["render", *arguments]) == code
    return capsys.readouterr().out


@pytest.mark.parametrize("where", [*EXAMPLES, *built_in_names()])
def test_without_the_comments_it_is_what_render_prints(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ROOT / where
    if where not in EXAMPLES:
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(trainjob("demo", on=where)))
    plain, explained = (render(capsys, "-f", str(file), *more).splitlines() for more in ([], ["--explain"]))
    assert len(plain) == len(explained) > 10
    for line, commented in zip(plain, explained, strict=True):
        assert re.fullmatch(re.escape(line) + r"( *  # \S.*)?", commented)
    told = [commented[len(line) :].lstrip(" #") for line, commented in zip(plain, explained, strict=True)]
    fields = json.loads(render(capsys, "-f", str(file), "--explain", "-o", "json"))
    assert [step for step in told if step] == [each["step"] for each in fields], "one for each value, in their order"


def test_json_is_a_list_of_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(trainjob("demo", on="torch-distributed", trainer={"image": "mine:1"})))
    arguments = ["-f", str(file), "--only", "JobSet"]
    fields = json.loads(render(capsys, *arguments, "--explain", "-o", "json"))
    path = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].image"
    assert {"object": "JobSet demo", "path": path, "step": "TrainJob spec.trainer.image"} in fields
    (jobset,) = json.loads(render(capsys, *arguments, "-o", "json"))["items"]
    assert len(fields) == len({each["path"] for each in fields}) == len(list(leaves(jobset, set_by("", jobset))))


def test_secrets_are_told_only_on_request_and_what_would_be_refused_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(trainjob("demo", on="deepspeed-distributed")))
    arguments = ["-f", str(file), "--only", "Secret", "--explain"]
    hidden = load_yaml(printed := render(capsys, *arguments))
    assert set(hidden["data"].values()) == {"<redacted>"}
    assert re.search(r"ssh-privatekey: <redacted> +# plugin mpi in build\n", printed)
    assert "<redacted>" not in load_yaml(render(capsys, *arguments, "--show-secrets"))["data"].values()
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(trainjob("demo", on="torch-distributed", trainr={})))
    assert render(capsys, "-f", str(file), "--explain", code=1) == ""


def test_a_pod_of_a_job_is_of_its_template_or_of_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples/v1/pytorchjob.yaml")
    fields = json.loads(render(capsys, "-f", file, "--only", "Pod", "--explain", "-o", "json"))
    steps = {(each["object"], each["path"]): each["step"] for each in fields}
    worker = "Pod pytorchjob-worker-0"
    assert steps[worker, "spec.containers[0].image"] == "PyTorchJob spec.pytorchReplicaSpecs.Worker.template"
    assert steps[worker, "spec.restartPolicy"] == "PyTorchJob spec.pytorchReplicaSpecs.Worker.restartPolicy"
    assert steps[worker, "metadata.name"] == "kind PyTorchJob"
    assert "kind PyTorchJob" in {step for (_, path), step in steps.items() if ".env[" in path}


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.lists(st.integers(0, 9), max_size=12) | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
@example({"a": "x\u2028y\nz", "b": "\x85", "c": "e\x85f\n", "d": "x\n\u2029\n", "e": " \n lead", "f": "tab\t\n"})
@example({"numbers": list(range(20)), "anchor": "&a", "y": "y", "comment": "a # b", "bars": "|\n>\n"})
def test_whatever_is_in_an_object_stays_what_it_is(obj: JsonObject) -> None:
    text = with_comments(obj, set_by("some step (acme.io/x)", obj))
    assert load_yaml(text) == load_yaml(to_yaml(obj))
    assert text.count("  # some step (acme.io/x)\n") >= 1


def test_long_lines_are_whole() -> None:
    """The writer of YAML folds what is longer than a million characters, and no comment may get into it."""
    obj = {"plain": "word " * 210_000, "quoted": "word: " * 210_000, "after": {}}
    is_same = load_yaml(with_comments(obj, set_by("runtime", obj))) == obj
    assert is_same
