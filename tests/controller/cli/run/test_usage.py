"""What is said of options that `run` does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
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
        (
            "train.py --nnodes 2 --nproc-per-node 2",
            "--nnodes 2 --nproc-per-node 2",
            "did you mean --nodes and --nproc?",
            "train.py --nodes 2 --nproc 2",
        ),
        ("train.py --max-restarts 3", "--max-restarts 3", "did you mean --retries?", "train.py --retries 3"),
        ("train.py --node 2", "--node 2", "did you mean --nodes?", "train.py --nodes 2"),
        ("train.py --lr 2 --nodes 2", "--lr 2", BEHIND, "train.py --nodes 2 -- --lr 2"),
        ("--verbose train.py", "--verbose", BEHIND, "train.py -- --verbose"),
        ("--config c.yaml train.py", "--config", BEHIND, "train.py -- --config c.yaml"),
        ("train.py --output-dir x -- --lr 1", "--output-dir x", BEHIND, "train.py -- --output-dir x --lr 1"),
        ("-m lib.train --lr 0.1", "--lr 0.1", BEHIND, "-m lib.train -- --lr 0.1"),
        (
            "train.py --node 2 --lr 0.1",
            "--node 2 --lr 0.1",
            f"did you mean --nodes?; {BEHIND}",
            "train.py --nodes 2 -- --lr 0.1",
        ),
        (
            "train.py --master-addr here --nodes 2",
            "--master-addr here",
            "--master-addr: the controller sets what torchrun is told by that",
            "train.py --nodes 2",
        ),
        ("job.yaml --lr 0.1", "--lr 0.1", BEHIND, None),
        ("job.yaml --time-out 3", "--time-out 3", "did you mean --timeout?", None),
    ],
)
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
        (["train.py", "-o", "yaml"], "--output is the form of --dry-run, which is not there"),
        (["missing.py"], "missing.py: cannot be read: No such file or directory"),
        ([], "nothing to run: name a program, such as train.py, or files with TrainJobs"),
        (["train.py", "--lr", "0.1"], "unrecognized arguments: --lr 0.1; what is meant for a program stands behind --"),
        (["train.py", "--nnodes", "2"], "usage: trainmaster run [options] PROGRAM"),
        (["-m", "lib.nosuch"], "-m lib.nosuch: lib has no module nosuch: lib/nosuch.py does not exist\n"),
        (["-m", "lib"], "-m lib: lib has no module __main__: lib/__main__.py does not exist\n"),
        (["-m", "nosuch"], "-m nosuch: there is no module nosuch: nosuch.py does not exist in "),
        (["trian.py"], "trian.py: cannot be read: No such file or directory; did you mean train.py?\n"),
        (["lib"], "trainmaster:   what next: `trainmaster run lib/beside.py` runs a program"),
        (["train.py", "--env", "=x"], "argument --env: '=x' is not NAME=VALUE"),
        (["train.py", "--env", "NO_SUCH_VARIABLE"], "argument --env: NO_SUCH_VARIABLE has no value here to take"),
        (["train.py", "--nodes", "0"], "argument --nodes: '0' is no whole number from 1 on"),
        (["train.py", "--nproc", "many"], "argument --nproc: 'many' is neither auto nor a whole number from 1 on"),
        (["train.py", "--memory", "8GB"], "argument --memory: '8GB' is not a quantity"),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_makes_no_sense_is_refused(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in refused(arguments, 2, capsys)


def test_files_that_cannot_be_used_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / "job.yaml"
    for text, complaint in (
        ("a: 1\nb: [1\nc: 2\n", "trainmaster: job.yaml:3: "),
        ("kind: TrainJob\n", "trainmaster: job.yaml:1: apiVersion is missing"),
        ("---\n# nothing\n", "trainmaster: no TrainJob in the files"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "trainmaster: no TrainJob in the files"),
    ):
        file.write_text(text)
        (line,) = refused(["job.yaml"], 2, capsys).splitlines()
        assert line.startswith(complaint)
    file.unlink()
    assert refused(["job.yaml"], 2, capsys) == "trainmaster: job.yaml: cannot be read: No such file or directory\n"
    (line,) = refused(["--kubeconfig", "missing", write(project, trainjob("nowhere", "true"))], 1, capsys).splitlines()
    assert "kubeconfig missing" in line
