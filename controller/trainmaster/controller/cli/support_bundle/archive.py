"""The archive that a support bundle becomes.

Guarantees:
- Only its owner can read it, from its first byte on. It is there as a whole or not at all, and takes the place of
  another one only if that is wanted.
- Of the same files the same archive is made.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import IO, Final

from trainmaster.controller.cli.options import CommandError

ROOT: Final = "trainmaster-support-bundle"
_MODE: Final = 0o600


def refuse_existing(path: Path) -> None:
    """Say so before anything is gathered, if a file may not be written.

    Raises:
        CommandError: It exists, or cannot be made there.
    """
    if path.is_dir():
        raise CommandError(f"{path} is a directory; give the name of a file in it: -o {path / ROOT}.tar.gz")
    if not path.parent.is_dir():
        raise CommandError(f"{path} cannot be written: there is no directory {path.parent}")
    if os.path.lexists(path):
        raise CommandError(f"{path} exists; --force replaces it, -o FILE writes elsewhere")


def write_file(path: Path, files: Iterable[tuple[str, bytes]], *, created: datetime, replace: bool) -> int:
    """Write an archive to a file; returns its size.

    Raises:
        CommandError: It cannot be written.
    """
    made: str | None = None
    try:
        # In the same directory, so that it can be renamed; mkstemp makes it for its owner only.
        number, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(number, "wb") as file:
            write(file, files, created=created)
        if not replace:
            refuse_existing(path)  # it may have come meanwhile
        Path(made).replace(path)
        made = None
        return path.stat().st_size
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        if made is not None:
            Path(made).unlink(missing_ok=True)


def write(stream: IO[bytes], files: Iterable[tuple[str, bytes]], *, created: datetime) -> None:
    """Write an archive to a stream."""
    moment = int(created.timestamp())
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, content in files:
            member = tarfile.TarInfo(f"{ROOT}/{path}")
            member.size, member.mtime, member.mode = len(content), moment, _MODE
            archive.addfile(member, io.BytesIO(content))
