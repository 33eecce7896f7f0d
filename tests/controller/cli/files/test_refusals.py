"""What users of Kubeflow ran into, offline: each refusal and warning says what to write in its place."""

import re
from pathlib import Path

import pytest

from trainmaster.controller.cli import main
from trainmaster.devcluster.apiserver.admission.plugins.podsecurity import violations
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

TRAINJOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: demo}
spec:
  runtimeRef: {name: torch-distributed}
"""
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mine, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata:
              labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}
            spec:
              template:
                spec:
                  containers:
                    - {name: node, image: "train:1"}
"""
OF_MINE = TRAINJOB.replace("{name: torch-distributed}", "{kind: TrainingRuntime, name: mine}")
PYTORCHJOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: demo}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - {name: pytorch, image: "train:1"}
"""
INITIALIZER = """\
        - name: dataset-initializer
          template:
            metadata:
              labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}
            spec:
              template:
                spec:
                  containers:
                    - {name: dataset-initializer, image: "fetch:1"}
"""
TOLERATIONS = """\
                  tolerations:
                    - {key: reserved-for, operator: Equal, value: training, effect: NoSchedule}
                    - {key: spot, operator: Exists}
"""
FLAVOR = """\
  runtimePatches:
    - manager: kueue.x-k8s.io/manager
      trainingRuntimeSpec:
        template:
          spec:
            replicatedJobs:
              - name: node
                template:
                  spec:
                    template:
                      spec:
                        tolerations:
                          - {key: spot, operator: Exists}
                          - {key: pool, operator: Exists}
"""
MPI = TRAINJOB.replace("torch-distributed", "deepspeed-distributed") + (
    "  trainer:\n    numNodes: 2\n    command: [mpirun, python, train.py]\n"
    "    env: [{name: HF_HOME, value: /data}, {name: NCCL_DEBUG, value: INFO}]\n"
)


def validate(capsys: pytest.CaptureFixture[str], file: Path) -> tuple[int, list[str]]:
    code = main(["validate", "-f", str(file)])
    return code, [line.removeprefix(f"{file}:") for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(TRAINJOB + "  podTemplateOverrides: [{targetJobs: [{name: node}]}]\n",
            ("spec.podTemplateOverrides: unknown field: runtimePatches has taken its place; "
             "`trainmaster convert -f FILE` prints it in today's form"), id="overrides of Trainer 2.1"),
        pytest.param(TRAINJOB.replace("trainer.kubeflow.org/v1alpha1", "kubeflow.org/v2alpha1"),
            ("apiVersion: kubeflow.org/v2alpha1 has no kind TrainJob, but trainer.kubeflow.org/v1alpha1 has; "
             "`trainmaster convert -f FILE` prints it in today's form"), id="TrainJob of Trainer 1.9"),
        pytest.param(RUNTIME.replace("name: node, image", "name: pytorch, image"),
            r'containers: Invalid value: .*ancestor: trainer; call it "node"', id="a trainer of another name"),
        pytest.param(PYTORCHJOB.replace('"train:1"', '"train:1", resources: {requests: {cpu: 0.5}}'),
            r'resources.requests.cpu: .*must be of type integer,string: "number"; write the number in quotes: "0.5"',
            id="half a CPU without quotes"),
        pytest.param(
            RUNTIME + INITIALIZER + "---\n" + OF_MINE + "  initializer: {dataset: {storageUri: hf://some/data}}\n",
            r"must have volumeMount with name - initializer in container dataset-initializer .*; give the pods of "
            r'dataset-initializer and of node the same volume "initializer", mounted at /workspace in both',
            id="an initializer without its volume",
        ),
        pytest.param(RUNTIME + "---\n" + TRAINJOB.replace("torch-distributed", "mine"),
            ('spec.runtimeRef.name: no file has ClusterTrainingRuntime "mine", .*; '
             "there is a TrainingRuntime of that name: write kind: TrainingRuntime"), id="runtimeRef without kind"),
    ],
)  # fmt: skip
def test_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(text)
    code, (told,) = validate(capsys, file)
    assert code == 1
    assert " error: " in told
    assert re.search(expected.replace("FILE", re.escape(str(file))) + "$", told), told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(RUNTIME + TOLERATIONS + "---\n" + OF_MINE + FLAVOR,
            (r"tolerations: take the place of those of the runtime, so that its pods lose "
             r"reserved-for=training:NoSchedule; repeat here what they need"), id="tolerations of a flavor"),
        pytest.param(
            MPI,
            "spec.trainer.env: does not reach the ranks of other nodes, which mpirun starts by ssh: name each variable "
            "there, as in `mpirun -x HF_HOME -x NCCL_DEBUG`",
            id="variables of MPI",
        ),
        pytest.param(PYTORCHJOB + "  runPolicy: {backoffLimit: 3}\n",
            "spec.runPolicy.backoffLimit: has no effect with restartPolicy Never: .* write OnFailure or ExitCode$",
            id="backoffLimit with Never"),
        pytest.param(
            OF_MINE.replace("{name: demo}", '{name: demo, labels: {sidecar.istio.io/inject: "false"}}')
            + "---\n"
            + RUNTIME,
            r"metadata.labels\[sidecar.istio.io/inject\]: has no effect here: it is read on pods; write it in "
            r"spec.runtimePatches\[\]\..*\.template.metadata.labels$",
            id="a label for pods on a TrainJob",
        ),
        pytest.param(
            PYTORCHJOB.replace("{name: demo}", '{name: demo, annotations: {sidecar.istio.io/inject: "false"}}'),
            r"metadata.annotations\[sidecar.istio.io/inject\]: .* spec.pytorchReplicaSpecs\[\]\..*annotations$",
            id="an annotation for pods on a PyTorchJob",
        ),
        pytest.param(RUNTIME + "---\n" + OF_MINE + "  trainer: {args: [train.py]}\n",
            "spec.trainer.args: nothing says what to run .* image: .* set spec.trainer.command, .*",
            id="args without a command"),
        pytest.param(PYTORCHJOB.replace("kubeflow.org/v1", "kubeflow.org/v2beta1").replace("PyTorchJob", "MPIJob"),
            "MPIJob of kubeflow.org/v2beta1 belongs to the MPI operator, .*", id="MPIJob of the MPI operator"),
    ],
)  # fmt: skip
def test_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(text)
    code, (told,) = validate(capsys, file)
    assert code == 0
    assert "warning: " in told
    assert re.search(expected, told), told


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(MPI.replace("[mpirun,", "[mpirun, -x, HF_HOME, -x, NCCL_DEBUG,"), id="mpirun -x"),
        pytest.param(MPI.replace("numNodes: 2", "numNodes: 1"), id="one node"),
        pytest.param(RUNTIME + "---\n" + OF_MINE + "  trainer: {command: [torchrun], args: [train.py]}\n", id="args"),
        pytest.param(PYTORCHJOB.replace("Never", "OnFailure") + "  runPolicy: {backoffLimit: 3}\n", id="backoffLimit"),
    ],
)
def test_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(text)
    assert validate(capsys, file) == (0, [])


@pytest.mark.parametrize("job", ["guide", "deepspeed-distributed", "mlx-distributed"])
def test_a_restricted_namespace_admits_the_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str], job: str) -> None:
    """MPI runtimes comply as they are, others with the patch of the guide."""
    guide = (Path(__file__).resolve().parents[4] / "docs/guides/runtime-patches.md").read_text()
    (patched,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    file = tmp_path / "case.yaml"
    file.write_text(patched if job == "guide" else TRAINJOB.replace("torch-distributed", job))
    assert main(["render", "-f", str(file), "--only", "JobSet"]) == 0
    jobset: JsonObject = load_yaml(capsys.readouterr().out.encode())
    for each in jobset["spec"]["replicatedJobs"]:
        assert [*violations(each["template"]["spec"]["template"]["spec"], "restricted")] == []
