"""Files with the certificates and keys that a kubeconfig holds as data: OpenSSL takes ours from files alone."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

_files: Final[dict[bytes, str]] = {}


def data_file(content: bytes) -> str:
    """Return a file that only we can read, the same one for the same content; it is gone when the process ends."""
    if content not in _files:
        if not _files:
            atexit.register(_remove)
        descriptor, path = tempfile.mkstemp(prefix="trainmaster-")
        _files[content] = path
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return _files[content]


def _remove() -> None:
    for path in _files.values():
        with contextlib.suppress(OSError):
            Path(path).unlink()
    _files.clear()
