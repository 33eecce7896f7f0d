"""The stand-in for the initializers of Kubeflow Trainer; Hugging Face's library only notes what it is asked for."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.kubelet.container_config import command_of
from trainmaster.devcluster.kubelet.runtime import initializer

pytestmark = pytest.mark.nightly

LIBRARY = """
import json, os
def snapshot_download(*, local_dir, **options):
    os.makedirs(local_dir)
    with open(os.path.join(local_dir, "asked"), "w") as file:
        json.dump(options, file)
"""


def fetched(tmp_path: Path, what: str, *, library: str = LIBRARY, **environment: str) -> tuple[Any, str]:
    """Run it; returns what the library was asked for, and the error."""
    (tmp_path / "huggingface_hub.py").write_text(library)
    target = tmp_path / "target"
    done = subprocess.run(
        [sys.executable, initializer.__file__, what, str(target)],
        env={"PYTHONPATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if done.stderr else 0)
    return json.loads((target / "asked").read_text()) if target.exists() else None, done.stderr


def test_a_data_set_is_fetched_whole(tmp_path: Path) -> None:
    asked, error = fetched(tmp_path, "dataset", STORAGE_URI="hf://tatsu-lab/alpaca/data", ACCESS_TOKEN="secret")
    assert (asked, error) == (
        {
            "repo_id": "tatsu-lab/alpaca",
            "repo_type": "dataset",
            "token": "secret",
            "allow_patterns": None,
            "ignore_patterns": None,
        },
        "",
    )


def test_of_a_model_what_trainers_read_is_fetched(tmp_path: Path) -> None:
    asked, _ = fetched(
        tmp_path, "model", STORAGE_URI="hf://Qwen/Qwen2.5-1.5B-Instruct", IGNORE_PATTERNS="*.gguf, *.txt,"
    )
    assert (asked["repo_id"], asked["repo_type"], asked["token"]) == ("Qwen/Qwen2.5-1.5B-Instruct", "model", None)
    assert "*.safetensors" in asked["allow_patterns"]
    assert asked["ignore_patterns"] == ["*.gguf", "*.txt"]


@pytest.mark.parametrize("uri", ["s3://bucket/key", "cache://x", "hf://only", "", "hf:///a/b"])
def test_what_it_cannot_fetch_it_names(tmp_path: Path, uri: str) -> None:
    asked, error = fetched(tmp_path, "dataset", STORAGE_URI=uri)
    assert asked is None
    assert error.startswith(f"STORAGE_URI={uri!r}: only hf://OWNER/NAME can be fetched")


def test_a_missing_library_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    _, error = fetched(tmp_path, "model", library="import nothing_of_this_name", STORAGE_URI="hf://a/b")
    assert "needs huggingface_hub (No module named 'nothing_of_this_name')" in error
    assert error.endswith("-m pip install huggingface_hub\n")


@pytest.mark.parametrize("what", ["dataset", "model"])
def test_it_runs_in_place_of_the_images(what: str) -> None:
    image = f"ghcr.io/kubeflow/trainer/{what}-initializer:v2.3.0"
    command = command_of({"name": "c", "image": image}, {})
    assert command == ["python", initializer.__file__, what, f"/workspace/{what}"]
    assert command_of({"name": "c", "image": image}, {image: ("own",)}) == ["own"]
