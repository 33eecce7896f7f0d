"""What is said of options that `run` does not know."""

from __future__ import annotations

import pytest

from trainmaster.controller.cli.run.usage import advice

OPTIONS = (
    "-m",
    "--nodes",
    "--nproc",
    "--gpus",
    "--retries",
    "--name",
    "--output",
    "--namespace",
    "--runtime",
    "--timeout",
)
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
