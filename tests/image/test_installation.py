"""`pip install trainmaster`, then `pip install 'trainmaster[local]'`, in an environment that has nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.debian import ROOT

from trainmaster.runtime.version import __version__

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("TRAINMASTER_IMAGE_ROOTFS"), reason="installs everything; `make image-rootfs` runs it"
    ),
    pytest.mark.timeout(600),
]

EXAMPLE = ROOT / "examples/numpy-digits"


def run(*command: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    foreign = {"KUBECONFIG", "TRAINMASTER_HOME", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_fresh_environment_says_what_it_lacks_until_it_has_it(tmp_path: Path) -> None:
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--quiet"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("trainmaster-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    install: list[str | Path] = [*pip, "--python", tmp_path / "venv/bin/python", "install", "--only-binary=:all:"]
    trainmaster = tmp_path / "venv/bin/trainmaster"

    install += ["-c", ROOT / "hack/requirements.txt"]
    run(*install, wheel, cwd=tmp_path)
    assert run(trainmaster, "--version", cwd=tmp_path).stdout == f"trainmaster {__version__}\n"
    run(trainmaster, "manager", "--help", cwd=tmp_path)
    assert "kind: JobSet" in run(trainmaster, "render", "-f", EXAMPLE, cwd=tmp_path).stdout
    checked = run(trainmaster, "validate", "-f", EXAMPLE, cwd=tmp_path)
    assert checked.stdout.startswith("warning: rules in CEL cannot be evaluated: cel-expr-python is not installed")
    refused = run(trainmaster, "cluster", "up", "--detach", cwd=tmp_path, code=1)
    assert "`pip install 'trainmaster[local]'` brings all that it needs" in refused.stderr

    run(*install, f"{wheel}[local]", cwd=tmp_path)
    assert run(trainmaster, "validate", "-f", EXAMPLE, cwd=tmp_path).stdout == ""
    run(trainmaster, "cluster", "up", "--detach", cwd=tmp_path)
    try:
        assert "ready" in run(trainmaster, "cluster", "status", cwd=tmp_path).stdout
    finally:
        run(trainmaster, "cluster", "down", "--purge", cwd=tmp_path)
