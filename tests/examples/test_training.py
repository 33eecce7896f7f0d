"""The scripts of the examples, started as the pods start them: one process a node, with the injected environment."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainmaster.devcluster.listener import free_port

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NODES = 2
TORCHRUN = ["-m", "torch.distributed.run"]

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn, which has the data, is missing")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed; `make run` installs it")


def train(launcher: list[str], script: Path) -> list[tuple[int, str, str]]:
    """Run a script on all nodes; returns exit code, output and errors of each."""
    common = {
        "PET_NNODES": str(NODES),
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, *launcher, script],
            env={**os.environ, **common, "PET_NODE_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(NODES)
    ]
    try:
        ended = [process.communicate(timeout=100) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(process.returncode, *texts) for process, texts in zip(processes, ended, strict=True)]


def check(ended: list[tuple[int, str, str]], *, epochs: int) -> None:
    """Check that the nodes trained, and that node 0 alone reported it."""
    first, second = (out for _, out, _ in ended)
    losses = [float(loss) for loss in re.findall(r"^epoch .* loss ([0-9.]+)$", first, re.MULTILINE)]
    assert len(losses) == epochs
    assert losses[-1] < losses[0] / 10
    assert second == "", "only node 0 reports"


def led_astray(script: Path, to: Path, *, before: str, by: str) -> Path:
    """Copy a script with a line that changes weights just before they are compared."""
    source = script.read_text(encoding="utf-8")
    assert source.count(before) == 1
    to.write_text(source.replace(before, by + before), encoding="utf-8")
    return to


@pytest.mark.nightly
def test_numpy_nodes_that_disagree_fail(tmp_path: Path) -> None:
    """The comparison at the end notices a node that went its own way.

    That nodes which agree succeed is seen on a whole cluster, where the guides run this example.
    """
    change = "    network.weights[0] += group.rank\n"
    script = EXAMPLES / "numpy-digits/train.py"
    ended = train([], led_astray(script, tmp_path / "train.py", before="    fingerprint = ", by=change))
    check(ended, epochs=20)
    assert [code for code, _, _ in ended] == [1] * NODES
    assert all("the nodes disagree about the weights" in err for _, _, err in ended)


@pytest.mark.nightly
@needs_torch
@pytest.mark.torch
def test_torch_ranks_that_disagree_fail(tmp_path: Path) -> None:
    """As above; the example itself is run by the tests of the examples on a whole cluster."""
    change = "    model[0].bias.data[0] += rank\n"
    script = EXAMPLES / "torch-digits/train.py"
    ended = train(TORCHRUN, led_astray(script, tmp_path / "train.py", before="    fingerprints: ", by=change))
    check(ended, epochs=10)
    assert [code for code, _, _ in ended] == [1] * NODES
    assert any("the ranks disagree about the weights" in err for _, _, err in ended)
