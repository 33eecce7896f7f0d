"""`trainmaster validate`: everything that is wrong in files, each with its place; and what files may hold at all."""

import json
import re
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.distributions import Distributions

from trainmaster.controller.cli import main
from trainmaster.controller.cli.files.manifests import ManifestError, load_manifests
from trainmaster.runtime.jsontree import JsonObject

ROOT = Path(__file__).resolve().parents[4]

WRONG = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: demo
  labls: {team: a}
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    numNode: 3
    numNodes: 0
    numProcPerNode: 0
    env:
      - name: PET_NNODES
        value: "3"
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: other
spec:
  runtimeRef: {name: torch-distribute}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJobb
metadata: {name: third}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: mine, labels: {trainer.kubeflow.org/framework: plain}}
spec:
  mlPolicy: {torch: {}, jax: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          replicas: one
          template: {}
---
a: [1
b: 2
"""


def validate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    code = main(["validate", *arguments])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


HEAD = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: demo}\n"


def test_everything_is_told_at_once_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(WRONG)
    code, lines, summary = validate(capsys, "-f", str(file))
    told = [line.removeprefix(f"{file}:") for line in lines]
    assert code == 1
    expected = [
        r'5:3: error: TrainJob demo: metadata.labls: unknown field \(did you mean "labels"\?\)',
        r'10:5: error: TrainJob demo: spec.trainer.numNode: unknown field \(did you mean "numNodes"\?\)',
        r"11:5: error: TrainJob demo: spec.trainer.numNodes: Invalid value: 0: .*",
        r"12:5: error: TrainJob demo: spec.trainer.numProcPerNode: Invalid value: 0: numProcPerNode must be greater .*",
        r"13:5: error: TrainJob demo: spec.trainer.env: Invalid value: .*reserved envs.*PET_NNODES.*",
        r'22:16: error: TrainJob other: spec.runtimeRef.name: no file has .*did you mean "torch-distributed"\?.*',
        r'25:1: error: TrainJobb third: kind: .* has no kind "TrainJobb" \(did you mean "TrainJob"\?\)',
        r"37:11: error: ClusterTrainingRuntime mine: spec.template.spec.replicatedJobs\[0\].replicas: .*integer.*",
        r"41:2: error: .*",
    ]
    assert len(told) == len(expected), told
    for line, pattern in zip(told, expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)
    assert summary == "trainmaster: 4 objects checked, 9 errors, 0 warnings\n"


def test_rules_in_cel_are_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rules are evaluated only on what has the right shape, as on a server."""
    file = tmp_path / "jobs.yaml"
    file.write_text(WRONG.split("---\n")[3].replace("replicas: one", "replicas: 1"))
    code, lines, _ = validate(capsys, "-f", str(file))
    assert code == 1
    assert any("spec.mlPolicy: Invalid value: Only one of the policy can be configured" in line for line in lines)


def test_what_is_right_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, summary = validate(
        capsys, "-f", str(ROOT / "deploy/runtimes"), "-f", str(ROOT / "examples/numpy-digits")
    )
    assert (code, lines) == (0, [])
    assert summary == "trainmaster: 11 objects checked, 0 errors, 0 warnings, not checked: ConfigMap\n"


PIPELINES = """
    from pydantic import BaseModel

    class Stage(BaseModel):
        name: str

    class Pipeline(BaseModel):
        stages: list[Stage]

    class Pipelines:
        name = "pipelines"
        ml_policy_config = Pipeline

        def enforce_ml_policy(self, info, config):
            info.labels["stages"] = str(len(config.stages))
"""
CUSTOM = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: staged, labels: {trainer.kubeflow.org/framework: plain}}
spec:
  mlPolicy:
    custom:
      name: pipelines
      config:
        stages:
          - name: 7
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            spec: {template: {spec: {containers: [{name: node, image: a}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: demo}
spec:
  runtimeRef: {kind: TrainingRuntime, name: staged}
"""


def test_a_policy_of_a_plugin_is_judged_by_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "runtime.yaml"
    file.write_text(CUSTOM)
    code, (runtime, job), _ = validate(capsys, "-f", str(file))
    assert runtime == (
        f"{file}:7:7: warning: TrainingRuntime staged: spec.mlPolicy.custom.name: no plugin of the name 'pipelines' is "
        "loaded; until one serves it, TrainJobs of this runtime are not built"
    )
    assert (code, job.startswith(f"{file}:22:3: error: TrainJob demo: spec.runtimeRef: ")) == (1, True)

    Distributions(tmp_path, monkeypatch).install("acme-pipelines", {"pipelines": "Pipelines"}, module=PIPELINES)
    monkeypatch.delitem(sys.modules, "acme_pipelines", raising=False)
    code, (runtime, job), _ = validate(capsys, "-f", str(file))
    assert code == 1
    assert runtime == (
        f"{file}:10:13: error: TrainingRuntime staged: spec.mlPolicy.custom.config.stages[0].name: Invalid value: 7: "
        "Input should be a valid string"
    )
    assert job.endswith(
        "the runtime cannot be used: spec.mlPolicy.custom.config.stages[0].name: Input should be a valid string, got 7"
    )
    file.write_text(CUSTOM.replace("name: 7", "name: first"))
    assert validate(capsys, "-f", str(file))[:2] == (0, [])


def test_files_that_cannot_be_read_are_told_with_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "repeated.json").write_text('{"kind": "TrainJob",\n "kind": "Pod"}')
    names = [str(tmp_path / name) for name in ("missing.yaml", "empty", "repeated.json")]
    code, lines, _ = validate(capsys, *(word for name in names for word in ("-f", name)))
    assert code == 1
    assert [line.split(": error: ")[0] for line in lines] == [names[0], names[1], f"{names[2]}:2:2"]


def test_items_of_lists_have_places_also_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Some JSON is no YAML; of that only the line is known in which the document starts."""
    job = (
        '{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "demo"},\n'
        '\t"spec": {"runtimeRef": {"name": "torch-distributed"}, "x": "%s"}}'
    )
    for name, value, place in (("yaml", "", "2:56"), ("json", "\\ud83d\\ude00", "1")):
        file = tmp_path / f"{name}.json"
        file.write_text('{"apiVersion": "v1", "kind": "List", "items": [' + job % value + "]}")
        _, (line,), _ = validate(capsys, "-f", str(file))
        assert line.startswith(f"{file}:{place}: error: TrainJob demo: spec.x: unknown field"), line


def test_the_report_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(WRONG)
    code, lines, errors = validate(capsys, "-f", str(file), "-o", "json")
    report = json.loads("\n".join(lines))
    assert (code, errors) == (1, "")
    assert report["valid"] is False
    assert len(report["problems"]) == 9
    assert report["problems"][1] == {
        "severity": "error",
        "file": str(file),
        "line": 10,
        "column": 5,
        "object": "TrainJob demo",
        "path": "spec.trainer.numNode",
        "message": 'unknown field (did you mean "numNodes"?)',
    }


def test_each_fault_points_to_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    torch, jax = (f"spec: {{runtimeRef: {{name: {name}-distributed}}}}\n" for name in ("torch", "jax"))
    for text, code, told in (
        # A warning does not fail.
        (HEAD + "spec:\n  runtimeRef:\n    apiGroup: kubeflow.org\n    name: torch-distributed\n", 0,
         "6:5: warning: TrainJob demo: spec.runtimeRef.apiGroup: "),
        # A required field that is missing points to what is around it.
        (HEAD + "spec:\n  runtimeRef:\n    kind: TrainingRuntime\n", 1,
         "5:3: error: TrainJob demo: spec.runtimeRef.name: Required value"),
        # Two objects of one name are an error unless they are the same.
        ("---\n".join(HEAD + spec for spec in (torch, torch, jax)), 1,
         "13:12: error: TrainJob demo: metadata.name: the files have another object"),
        # Our kinds in a wrong group are not passed over.
        (HEAD.replace("kubeflow.org", "kubeflow.com"), 1, "1:1: error: TrainJob demo: apiVersion: "),
    ):  # fmt: skip
        file.write_text(text)
        ended, (line,), summary = validate(capsys, "-f", str(file))
        assert (ended, line.startswith(f"{file}:{told}")) == (code, True), line
        assert ("0 errors, 1 warning" in summary) == (code == 0)
    assert "but trainer.kubeflow.org/v1alpha1 has" in line
    # Files without any object are no success.
    file.write_text("# nothing\n")
    ended, lines, summary = validate(capsys, "-f", str(file))
    assert (ended, lines, "nothing to check" in summary) == (1, [], True)


MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"


def read(text: str) -> list[tuple[str, JsonObject]]:
    with TemporaryDirectory() as directory, chdir(directory):
        Path("f").write_text(text, encoding="utf-8")
        return [(manifest.place, manifest.object) for manifest in load_manifests(["f"])]


def test_every_document_knows_its_line_also_in_json() -> None:
    text = f"# comment\n{MAP % 'a'}---\n---\n\n{MAP % 'b'}"
    assert [(place, obj["metadata"]["name"]) for place, obj in read(text)] == [("f:2", "a"), ("f:8", "b")]
    # Json may be indented with tabs and lists are taken apart.
    item = '{"apiVersion": "v1",\t"kind": "Pod", "metadata": {"name": "%s"}}'
    text = '\n{\n\t"kind": "List",\n\t"items": [' + ",".join(item % name for name in "ab") + "]}"
    assert [(place, obj["metadata"]["name"]) for place, obj in read(text)] == [("f:2", "a"), ("f:2", "b")]


def test_scalars_are_those_of_kubernetes_and_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    ((_, obj),) = read(f"{MAP % 'a'}data: {{day: 2024-01-01, time: 12:30:45, mode: 0644, on: yes}}\n")
    assert obj["data"] == {"day": "2024-01-01", "time": "12:30:45", "mode": 0o644, "true": True}
    # A file that is no text is named.
    path = tmp_path / "model.bin"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match=r"model\.bin:1: the file is not UTF-8"):
        load_manifests([str(path)])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [1\nb: 2\n", r"^f:2: "),
        ("a: 1\nb: 2\na: 3\n", r"^f:3: .*a.* already set"),
        ('{"a": 1,\n "a": 2}', r"^f:2: .*a.* already set"),
        ('{"a": NaN}', r"^f:1: "),
        ("{" + '"a":{' * 5000 + "}" * 5001, r"^f:1: .*nested"),
        ("- 1\n", r"^f:1: expected a Kubernetes object, got list"),
        ("just text\n", r"^f:1: expected a Kubernetes object, got str"),
        ("kind: Pod\n", r"^f:1: apiVersion is missing"),
        ("apiVersion: 1\nkind: Pod\n", r"^f:1: apiVersion is missing or no text"),
        ("apiVersion: v1\nkind: Pod\n", r"^f:1: metadata is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 5}\n", r"^f:1: metadata.name is no text; quote it"),
        (f"{MAP % 'a'}---\n{MAP % 'b'}data: !!binary aGk=\n", r"^f:8: .*binary has no JSON form"),
    ],
)
def test_complaints_name_the_line(text: str, complaint: str) -> None:
    with pytest.raises(ManifestError, match=complaint) as refusal:
        read(text)
    assert "\n" not in str(refusal.value)
