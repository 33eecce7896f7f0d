"""What is said of options that `run` does not know."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from support.kubeconfigs import write_kubeconfig
from support.running_jobs import trainjob, write

from trainmaster.controller.cli import main
from trainmaster.controller.cli.run import command
from trainmaster.controller.cli.run.command import advice

LONG = ("nodes", "nproc", "gpus", "retries", "name", "output", "namespace", "runtime", "timeout")
OPTIONS = ("-m", *(f"--{name}" for name in LONG))
BEHIND = "what is meant for a program stands behind --"


@pytest.mark.parametrize(
    ("line", "unknown", "told", "corrected"),
    [
        ("train.py --nnodes 2", "--nnodes 2", "did you mean --nodes?", "train.py --nodes 2"),
        ("--nnodes 2 train.py", "--nnodes", "did you mean --nodes?", "--nodes 2 train.py"),
        ("--nnodes=2 train.py -- x", "--nnodes=2", "did you mean --nodes?", "--nodes=2 train.py -- x"),
        ("train.py --nproc_per_node 2", "--nproc_per_node 2", "did you mean --nproc?", "train.py --nproc 2"),
        ("train.py --nnodes 2 --nproc-per-node 2", "--nnodes 2 --nproc-per-node 2", "did you mean --nodes and --nproc?",
         "train.py --nodes 2 --nproc 2"),
        ("train.py --max-restarts 3", "--max-restarts 3", "did you mean --retries?", "train.py --retries 3"),
        ("train.py --node 2", "--node 2", "did you mean --nodes?", "train.py --nodes 2"),
        ("train.py --lr 2 --nodes 2", "--lr 2", BEHIND, "train.py --nodes 2 -- --lr 2"),
        ("--verbose train.py", "--verbose", BEHIND, "train.py -- --verbose"),
        ("--config c.yaml train.py", "--config", BEHIND, "train.py -- --config c.yaml"),
        ("train.py --output-dir x -- --lr 1", "--output-dir x", BEHIND, "train.py -- --output-dir x --lr 1"),
        ("-m lib.train --lr 0.1", "--lr 0.1", BEHIND, "-m lib.train -- --lr 0.1"),
        ("train.py --node 2 --lr 0.1", "--node 2 --lr 0.1", f"did you mean --nodes?; {BEHIND}",
         "train.py --nodes 2 -- --lr 0.1"),
        ("train.py --master-addr here --nodes 2", "--master-addr here",
         "--master-addr: the controller sets what torchrun is told by that", "train.py --nodes 2"),
        ("torchrun --nnodes 2 train.py", "--nnodes", "did you mean --nodes?", "--nodes 2 train.py"),
        ("job.yaml --lr 0.1", "--lr 0.1", BEHIND, None),
        ("job.yaml --time-out 3", "--time-out 3", "did you mean --timeout?", None),
    ],
)  # fmt: skip
def test_unknown_options_are_told_what_was_meant(line: str, unknown: str, told: str, corrected: str | None) -> None:
    expected = told if corrected is None else f"{told}\n  what next: `trainmaster run {corrected}`"
    assert advice(line.split(), unknown.split(), OPTIONS) == expected


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a program, a module beside it, and a manifest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "configure_logs", lambda **_: None)  # for the whole process otherwise
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name, text in (("train.py", ""), ("lib/beside.py", ""), ("job.yaml", "apiVersion: v1\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def refused(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of a command line before anything is started."""
    try:
        ended = main(["run", *arguments])
    except SystemExit as stopped:
        ended = int(stopped.code or 0)
    printed = capsys.readouterr()
    assert (ended, printed.out) == (code, "")
    assert not Path(".trainmaster").exists()
    return printed.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train.py", "job.yaml"], "train.py is a program and runs alone, without job.yaml"),
        (["train.py", "0.1"], "arguments of the program stand behind --, as in `trainmaster run train.py -- 0.1`"),
        (["-m", "package.task", "train.py"], "-m package.task runs a module, and train.py is too much"),
        (["-m", "package/task.py"], "-m package/task.py: this is no name of a module, such as package.train; run it"),
        (["job.yaml", "--nodes", "2"], "--nodes is for programs, such as train.py; a manifest says it itself"),
        (["job.yaml", "--dry-run"], "--dry-run is for programs, such as train.py; `trainmaster diff` shows"),
        (["job.yaml", "--", "x"], "what stands behind -- are arguments of a program, and there is none"),
        (["--", "--lr", "1"], "what stands behind -- is a command, and --lr is none; name a program in front of it"),
        (["torchrun", "train.py"], "  what next: `trainmaster run train.py`; a command that is to run as it is stands"),
        (["python", "train.py", "1", "--", "-x"], "  what next: `trainmaster run train.py -- 1 -x`; a command"),
        (["python", "-m", "lib"], "`trainmaster run -m lib`; a command that is to run as it is stands behind --: "),
        (["torchrun", "train.py"], "leave torchrun out: `run` starts it by itself, on each node"),
        (["torchrun", "train.py"], "behind --: `trainmaster run -- torchrun train.py`\n"),
        (["accelerate", "launch", "train.py"], "as in `trainmaster run -- accelerate launch train.py`; manifests"),
        (["train.py", "-o", "yaml"], "--output is the form of --dry-run, which is not there"),
        (["missing.py"], "missing.py: cannot be read: No such file or directory"),
        ([], "nothing to run: name a program, such as train.py, files with jobs, or a command behind --\n"),
        (["train.py", "--lr", "0.1"], "unrecognized arguments: --lr 0.1; what is meant for a program stands behind --"),
        (["train.py", "--nnodes", "2"], "usage: trainmaster run [options] PROGRAM"),
        (["-m", "lib.nosuch"], "-m lib.nosuch: lib has no module nosuch: lib/nosuch.py does not exist\n"),
        (["-m", "lib"], "-m lib: lib has no module __main__: lib/__main__.py does not exist\n"),
        (["-m", "nosuch"], "-m nosuch: there is no module nosuch: nosuch.py does not exist in "),
        (["trian.py"], "trian.py: cannot be read: No such file or directory; did you mean train.py?\n"),
        (["ring.py"], "ring.py: cannot be read: No such file or directory\n"),
        (["W_Train.py"], "W_Train.py: cannot be read: No such file or directory; did you mean train.py?\n"),
        (["lib"], "trainmaster:   what next: `trainmaster run lib/beside.py` runs a program"),
        (["train.py", "--env", "=x"], "argument --env: '=x' is not NAME=VALUE"),
        (["train.py", "--env", "NO_SUCH_VARIABLE"], "argument --env: NO_SUCH_VARIABLE has no value here to take"),
        (["train.py", "--env", "PET_NNODES=2"], "--env PET_NNODES: the runtime torch-distributed sets"),
        (["train.py", "--nodes", "0"], "argument --nodes: '0' is no whole number from 1 on"),
        (["train.py", "--nproc", "many"], "argument --nproc: 'many' is neither auto nor a whole number from 1 on"),
        (["train.py", "--memory", "8GB"], "argument --memory: '8GB' is not a quantity"),
        (["train.py", "--memory", "2Gi", "--memory-limit", "1Gi"], "--memory 2Gi is more than --memory-limit 1Gi"),
        (["train.py", "--requirements", "none.txt"], "--requirements none.txt: there is no such file"),
        (["train.py", "--dry-run", "--name", "Wrong"], "train.py: error: TrainJob Wrong: metadata.name: Invalid value"),
        (["train.py", "--dry-run", "--runtime", "none"], 'has ClusterTrainingRuntime "none", and it is not built in'),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_makes_no_sense_is_refused(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in refused(arguments, 2, capsys)


@pytest.mark.parametrize(
    ("words", "said", "args"),
    [
        (["train.sh"], "train.sh: sh on 1 node", ["sh", "train.sh"]),
        (["./tool", "--", "a b"], "./tool: bash -e on 1 node", ["bash", "-e", "./tool", "a b"]),
        (["--", "make", "train"], "make train: as it is on 1 node", ["make", "train"]),
        (["--nproc", "2", "--", "torchrun", "sub.py"], "runtime torch-distributed (it imports torch)", None),
        (["--", "python", "-m", "jaxed", "x"], "runtime jax-distributed (it imports jax)", None),
    ],
)
def test_any_command_runs(
    words: list[str], said: str, args: list[str] | None, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts by their interpreter, since what is brought along to a cluster by a ConfigMap cannot be executed."""
    texts = {"train.sh": "torchrun train.py\n", "tool": "#!/usr/bin/env -S bash -e\n"}
    for name, text in (texts | {"sub.py": "import torch", "jaxed.py": "import jax"}).items():
        (project / name).write_text(text)
    assert main(["run", "--dry-run", *words]) == 0
    printed = capsys.readouterr()
    assert said in printed.err
    job = yaml.safe_load(printed.out)
    assert job["spec"]["trainer"]["args"] == (args or words[words.index("--") + 1 :])
    assert re.fullmatch(r"(train|tool|make|sub|jaxed)-[a-z0-9]{5}", job["metadata"]["name"])
    assert job["spec"]["trainer"].get("numProcPerNode") == {"--nproc": 2}.get(words[0], None if args is None else 1)


def test_several_processes_on_a_node_take_torchrun(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "plain.py").write_text("print('one')")
    (project / "sub.py").write_text("import torch")
    for words, warns in (
        (["plain.py", "--nproc", "2"], True),
        (["plain.py", "--nproc", "1"], False),
        (["--nproc", "2", "--", "torchrun", "plain.py"], False),
        (["sub.py", "--nproc", "2"], False),
    ):
        assert main(["run", "--dry-run", *words]) == 0
        assert ("warning: --nproc 2 has no effect" in capsys.readouterr().err) == warns, words


READS = 'import os\n\ndef main():\n    print(os.environ["RANK"], os.environ["LOCAL_RANK"])\n'


@pytest.mark.parametrize(
    ("text", "words", "unset"),
    [
        (READS, ["train.py"], "LOCAL_RANK, RANK"),
        (READS, ["--env", "RANK=0", "train.py"], "LOCAL_RANK"),
        (READS, ["--", "python", "train.py", "--lr", "1"], "LOCAL_RANK, RANK"),
        (READS, ["-m", "train"], "LOCAL_RANK, RANK"),
        (READS, ["--", "torchrun", "train.py"], ""),
        (READS, ["--", "python", "-m", "torch.distributed.run", "train.py"], ""),
        (f"import torch\n{READS}", ["train.py"], ""),
        (READS.replace("    print", "    if len(os.environ) > 99: print"), ["train.py"], ""),
        ('import os\nos.environ["RANK"] = "0"\nos.environ.get("WORLD_SIZE")', ["train.py"], ""),
    ],
)
def test_variables_of_torchrun_are_told_where_it_is_not_started(
    text: str, words: list[str], unset: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "train.py").write_text(text)
    assert main(["run", "--dry-run", *words]) == 0
    told = capsys.readouterr().err
    assert (f" reads {unset}, which torchrun sets, and is started without" in told) == bool(unset), told
    if (advised := re.search(r"to start it so: trainmaster run (.*?); ", told)) is not None:
        assert main(["run", "--dry-run", *shlex.split(advised[1])]) == 0
        assert "which torchrun sets" not in capsys.readouterr().err


def test_memory_may_be_limited_and_a_size_without_a_unit_is_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size, warns in (("8", True), ("8Gi", False)):
        assert main(["run", "train.py", "--memory-limit", size, "--dry-run"]) == 0
        printed = capsys.readouterr()
        job = yaml.safe_load(printed.out)
        assert job["spec"]["trainer"]["resourcesPerNode"] == {"limits": {"memory": size}}
        told = "warning: --memory-limit 8 is less than 1 MiB: 8Gi are 8 GiB, and a number alone is of bytes\n"
        assert (told in printed.err) == warns


def test_names_alone_are_printed_for_programs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "train.py", "--name", "mine", "--dry-run", "-o", "name"]) == 0
    assert capsys.readouterr().out == "mine\n"


def test_packages_are_installed_and_checkpoints_have_a_directory_that_stays(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "needs.txt").write_text("two\n")
    words = ["--pip", "one>=1", "--requirements", "needs.txt", "--checkpoints", "ckpt"]
    assert main(["run", "train.py", *words, "--dry-run"]) == 0
    trainer = yaml.safe_load(capsys.readouterr().out)["spec"]["trainer"]
    pip = "python -m pip install --quiet --disable-pip-version-check"
    assert trainer["command"][2] == (
        f'cd "$0" && mkdir -p "$CHECKPOINT_DIR" && {pip} \'one>=1\' -r {project}/needs.txt && exec "$@"'
    )
    assert {"name": "CHECKPOINT_DIR", "value": f"{project}/ckpt"} in trainer["env"]
    # On a cluster of other machines the files come along, and the directory is a claim.
    config = write_kubeconfig(project / "config", "https://127.0.0.1:1")
    assert main(["run", "train.py", *words, "--nodes", "2", "--dry-run", "-o", "json", "--kubeconfig", config]) == 0
    claim, files, job = json.loads(capsys.readouterr().out)["items"]
    assert (claim["metadata"]["name"], claim["spec"]["accessModes"]) == ("ckpt", ["ReadWriteMany"])
    assert "needs.txt" in files["data"]
    assert f"{pip} 'one>=1' -r needs.txt && exec" in job["spec"]["trainer"]["command"][2]
    assert {"name": "CHECKPOINT_DIR", "value": "/trainmaster/checkpoints"} in job["spec"]["trainer"]["env"]
    assert "{'claimName': 'ckpt'}" in str(job["spec"]["runtimePatches"])


def test_files_that_cannot_be_used_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / "job.yaml"
    for text, complaint in (
        ("a: 1\nb: [1\nc: 2\n", "trainmaster: job.yaml:3: "),
        ("kind: TrainJob\n", "trainmaster: job.yaml:1: apiVersion is missing"),
        ("---\n# nothing\n", "trainmaster: no TrainJob or other job in"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "trainmaster: no TrainJob or other job in"),
    ):
        file.write_text(text)
        (line,) = refused(["job.yaml"], 2, capsys).splitlines()
        assert line.startswith(complaint)
    file.unlink()
    assert refused(["job.yaml"], 2, capsys) == "trainmaster: job.yaml: cannot be read: No such file or directory\n"
    (line,) = refused(["--kubeconfig", "missing", write(project, trainjob("nowhere", "true"))], 1, capsys).splitlines()
    assert "kubeconfig missing" in line


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("utlis", "utlis: did you mean utils, which is beside the program?"),
        ("Utils", "Utils: did you mean utils, which is beside the program?"),
        ("beside", "beside is in lib, where Python does not look: --env PYTHONPATH=lib"),
        ("nested", "nested is in src/inner, where Python does not look: --env PYTHONPATH=src/inner"),
        ("vendored", f"correct vendored, or, if it is the name of a package as well, {sys.executable} -m pip install"),
        ("skimage", f"{sys.executable} -m pip install scikit-image"),
    ],
)
def test_of_a_missing_module_what_the_project_has_of_it_is_told(
    module: str, advice: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in ("utils.py", "src/inner/nested/__init__.py", ".venv/vendored.py"):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).touch()
    (project / "train.py").write_text(f"import {module}")
    assert main(["run", "train.py", "--dry-run"]) == 0
    assert f"\n  what next: {advice}" in capsys.readouterr().err
    # Where it is found with what is advised, nothing is missing.
    if "--env" in advice:
        assert main(["run", "train.py", "--dry-run", *advice.split()[-2:]]) == 0
        assert "has not got" not in capsys.readouterr().err
