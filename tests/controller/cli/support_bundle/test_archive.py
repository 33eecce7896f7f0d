"""The archive as a file."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainmaster.controller.cli.options import CommandError
from trainmaster.controller.cli.support_bundle.archive import refuse_existing, write, write_file

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
FILES = [("index.json", b"{}\n"), ("namespaces/team/pods.json", b"[]\n")]


def test_only_its_owner_can_read_it_and_the_same_is_written_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    assert write_file(path, FILES, created=NOW, replace=False) == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert [(each.name, each.mode) for each in members] == [
            ("trainmaster-support-bundle/index.json", 0o600),
            ("trainmaster-support-bundle/namespaces/team/pods.json", 0o600),
        ]
        content = archive.extractfile(members[0])
        assert content is not None
        assert content.read() == b"{}\n"
    assert list(tmp_path.iterdir()) == [path]
    first, second = io.BytesIO(), io.BytesIO()
    write(first, FILES, created=NOW)
    write(second, FILES, created=NOW)
    assert first.getvalue() == second.getvalue()


def test_a_file_that_exists_is_replaced_only_where_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_text("precious")
    path.chmod(0o644)
    with pytest.raises(CommandError, match=r"bundle\.tar\.gz exists; --force replaces it"):
        write_file(path, FILES, created=NOW, replace=False)
    assert path.read_text() == "precious"
    write_file(path, FILES, created=NOW, replace=True)
    assert tarfile.is_tarfile(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    # A link is replaced and not what it leads to.
    path, target = tmp_path / "link.tar.gz", tmp_path / "target"
    path.symlink_to(target)
    with pytest.raises(CommandError, match="exists"):
        refuse_existing(path)
    write_file(path, FILES, created=NOW, replace=True)
    assert not path.is_symlink()
    assert not target.exists()


def test_nothing_is_left_of_one_that_breaks_off_and_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    def files() -> Iterator[tuple[str, bytes]]:
        yield FILES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "bundle.tar.gz", files(), created=NOW, replace=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CommandError, match=r"is a directory; give the name of a file in it: -o .*\.tar\.gz"):
        refuse_existing(tmp_path)
    with pytest.raises(CommandError, match=r"missing/x cannot be written: No such file or directory"):
        write_file(tmp_path / "missing/x", FILES, created=NOW, replace=False)
