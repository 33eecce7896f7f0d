"""A program in place of the images of the initializers of Kubeflow Trainer: fetches a data set or a model.

What is fetched, from where and to which directory is what those images do, from the variables that TrainJobs set:
STORAGE_URI, and ACCESS_TOKEN and IGNORE_PATTERNS if given. `hf://` is known here, Hugging Face, by its own library in
the Python of the pod.

Usage: `python initializer.py dataset|model DIRECTORY`
"""

from __future__ import annotations

import importlib
import os
import sys
from urllib.parse import urlsplit

_MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.gguf"]


def main() -> str | None:
    """Fetch it; returns what is wrong, if anything is."""
    what, directory = sys.argv[1:]
    source = os.environ.get("STORAGE_URI", "")
    uri = urlsplit(source)
    if uri.scheme != "hf" or not uri.netloc or not uri.path.strip("/"):
        return (
            f"STORAGE_URI={source!r}: only hf://OWNER/NAME can be fetched without the image of the initializer; start "
            "the cluster with --entrypoint IMAGE=COMMAND to say what runs in its place"
        )
    repository = f"{uri.netloc}/{uri.path.split('/')[1]}"
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        return f"fetching {source} needs huggingface_hub ({error}): {sys.executable} -m pip install huggingface_hub"
    ignored = list(filter(None, map(str.strip, os.environ.get("IGNORE_PATTERNS", "").split(","))))
    print(f"fetching the {what} {repository}", flush=True)
    hub.snapshot_download(
        repo_id=repository,
        repo_type=what,
        local_dir=directory,
        token=os.environ.get("ACCESS_TOKEN") or None,
        allow_patterns=_MODEL_FILES if what == "model" else None,
        ignore_patterns=ignored or None,
    )
    print(f"the {what} is in {directory}", flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
