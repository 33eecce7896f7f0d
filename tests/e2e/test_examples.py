"""The examples, the guides, the concepts and the first pages, as users run them, on a whole embedded cluster.

What needs a framework runs where that is installed: `make test-nightly` installs JAX and XGBoost; PyTorch, whose
default build for Linux comes with CUDA, is there after `make run`.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.commands import trainmaster

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDES = sorted(path for path in [*DOCS.glob("guides/*.md"), *DOCS.glob("concepts/*.md")] if path.stem != "README")
GUIDES = [path for path in GUIDES if "\n```sh\n" in path.read_text(encoding="utf-8")]
GUIDES += [
    DOCS / f"{name}.md" for name in ("first-job", "first-job-on-a-cluster", "plugins", "support-bundle", "v1-jobs")
]
NEEDED = {"torch-digits": "torch", "jax-digits": "jax", "xgboost-digits": "xgboost", "v1/pytorchjob": "torch"}
TIMEOUT = 480

pytestmark = [
    pytest.mark.timeout(TIMEOUT),
    pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn, which has the data, is missing"),
]


def marks(name: str, module: str | None) -> list[pytest.MarkDecorator]:
    if module is None:
        return []
    missing = pytest.mark.skipif(find_spec(module) is None, reason=f"{module}, which {name} needs, is not installed")
    return [missing, *([pytest.mark.torch] if module == "torch" else [])]


def commands(guide: Path) -> str:
    """What a guide tells to run."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", guide.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


def followed(guide: Path) -> list[str]:
    """The examples that a guide runs to their end."""
    return re.findall(r"^trainmaster run examples/([\w-]+)(?: --delete)?$", commands(guide), re.MULTILINE)


def trained(example: str, output: str) -> None:
    """Check what an example printed of its training."""
    accuracies = [float(found) for found in re.findall(r"accuracy ([0-9.]+)%", output)]
    assert accuracies, output
    if example.endswith("-digits"):
        losses = [float(found) for found in re.findall(r"loss ([0-9.]+)$", output, re.MULTILINE)]
        assert losses[-1] < losses[0] / 10
        assert accuracies[0] >= 95


def guide_marks(guide: Path) -> list[pytest.MarkDecorator]:
    text = commands(guide)
    needed = next(
        (module for name, module in NEEDED.items() if re.search(f"(run|apply -f) examples/{name}", text)), None
    )
    imported = re.search(r"^import (torch)$", text, re.MULTILINE)  # by a script that is written on the page
    needed = imported[1] if imported else needed
    found = marks(guide.stem, needed)
    if "kubectl" in text:
        missing = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
        found += [pytest.mark.kubectl, missing]
    return found


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path.parent, marks=marks(path.parent.name, NEEDED.get(path.parent.name)), id=path.parent.name)
        for path in sorted((ROOT / "examples").glob("*/train.py"))
        if path.parent.name not in {example for guide in GUIDES for example in followed(guide)}
    ],
)
async def test_an_example_that_no_guide_runs_trains(example: Path, cluster_home: Path) -> None:
    done = await trainmaster(
        *("run", str(example), "--plain", "--delete", "--timeout", "55"),
        cwd=cluster_home,
        KUBECONFIG=str(cluster_home / ".trainmaster/kubeconfig"),
    )
    assert done.code == 0, done.out + done.err
    trained(example.name, done.out)


@pytest.mark.parametrize("guide", [pytest.param(guide, marks=guide_marks(guide), id=guide.stem) for guide in GUIDES])
def test_the_commands_of_a_guide_work(guide: Path, cluster_home: Path, tmp_path: Path) -> None:
    """In their order, from a checkout; what is trained on the way is trained well."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    environment = os.environ | {
        "KUBECONFIG": str(cluster_home / ".trainmaster/kubeconfig"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-x", "-c", commands(guide)],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT - 20,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for example in followed(guide):
        trained(example, done.stdout)
