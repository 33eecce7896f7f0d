"""Writing the files of a volume all at once, behind a `..data` link, as the kubelet's AtomicWriter does.

No path leads out of its volume.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainmaster.devcluster.kubelet.container import PodRejectedError


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """One file of a generated volume."""

    path: str
    content: bytes
    mode: int


def write_atomically(place: Path, files: list[VolumeFile]) -> None:
    """Write the files to a fresh directory and switch `..data` to it, which no reader can see half done."""
    place.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=place))
    for file in files:
        target = fresh / path_inside(file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    fresh.chmod(0o755)
    data = place / "..data"
    before = data.resolve() if data.is_symlink() else None
    link = place / "..data.new"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    os.replace(link, data)  # noqa: PTH105 - atomic, and named as what it is
    for name in {path_inside(file.path).parts[0] for file in files}:
        if not (place / name).is_symlink():
            (place / name).symlink_to(Path("..data") / name)
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)


def path_inside(path: str) -> PurePosixPath:
    """Give a path relative to its volume; raises PodRejectedError for one that leads out of it."""
    relative = PurePosixPath(path)
    if not path or relative.is_absolute() or ".." in relative.parts:
        raise PodRejectedError("InvalidVolumeMount", f"path {path!r} must be relative and must not contain '..'")
    return relative
