"""The files that go with a program to a cluster that does not see this machine: a ConfigMap.

Guarantees:
- Only regular files: no links, sockets or devices. Nothing outside of the directory.
- What is left out: hidden files, caches, virtual environments, directories of data and checkpoints, and weights, unless
  the program imports it; then what `.trainmasterignore` says, which has the syntax of a .gitignore and the last word.
- It fits: a ConfigMap has at most 1 MiB. What does not is refused with the largest files and what to do; a directory
  with very many is not searched to its end.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from trainmaster.controller.cli.printers import counted
from trainmaster.controller.cli.run.script.options import ProgramError
from trainmaster.runtime.jsontree import JsonObject

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE: Final = ".trainmasterignore"

_LIMIT: Final = 2**20
"""Bytes that the values of a ConfigMap may have (kube-apiserver: MaxSecretSize)."""

_FILES_AT_MOST: Final = 10_000
_SHOWN: Final = 5
_IGNORED: Final = (
    ".*",
    "__pycache__/",
    "*.py[cod]",
    "*.egg-info/",
    "venv/",
    "env/",
    "node_modules/",
    "data/",
    "dataset/",
    "datasets/",
    "checkpoint*/",
    "runs/",
    "wandb/",
    "mlruns/",
    "outputs/",
    "lightning_logs/",
    "*.ckpt",
    "*.pt",
    "*.pth",
    "*.safetensors",
)
_KEY_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_KEY: Final = 200


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    is_executable: bool = False


@dataclass(slots=True)
class Files:
    """The files of a directory that are brought along, by their paths in it."""

    files: dict[str, _File] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Files and directories that are not, as patterns or for what they are."""

    @property
    def size(self) -> int:
        """Bytes of them all."""
        return sum(len(file.content) for file in self.files.values())

    def add(self, path: str, text: str) -> None:
        """Add a file that is not in the directory."""
        self.files[path] = _File(text.encode())

    def config_map(self, name: str, labels: Mapping[str, str]) -> JsonObject:
        """Return the ConfigMap that holds them."""
        data, binary = {}, {}
        for key, (_, file) in self._by_key():
            try:
                data[key] = file.content.decode()
            except UnicodeDecodeError:
                binary[key] = base64.b64encode(file.content).decode()
        contents = {name: values for name, values in (("data", data), ("binaryData", binary)) if values}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": dict(labels)}, **contents}

    def items(self) -> list[JsonObject]:
        """Return which file each of its keys is, for a volume."""
        return [
            {"key": key, "path": path} | ({"mode": 0o755} if file.is_executable else {})
            for key, (path, file) in self._by_key()
        ]

    def _by_key(self) -> Iterator[tuple[str, tuple[str, _File]]]:
        taken: set[str] = set()
        for path, file in sorted(self.files.items()):
            plain = "".join(letter if letter in _KEY_CHARACTERS else "_" for letter in path)[-_LONGEST_KEY:]
            key = f"_{plain}" if plain.startswith(".") else plain  # some such keys are refused
            while key in taken:
                key = f"{key}.{len(taken)}"
            taken.add(key)
            yield key, (path, file)


def collect_files(directory: Path, *, needed: Collection[Path], made: Mapping[str, str]) -> Files:
    """Read the files of a directory.

    `needed` are files that the program imports, `made` those that are not there, with their texts.

    Raises:
        ProgramError: They are too large, or one cannot be read.
    """
    found = Files()
    for path, text in made.items():
        found.add(path, text)
    ours = _ours(directory)
    defaults = _patterns(_IGNORED)
    sizes: dict[str, int] = {}
    for path, size in _walk(directory, directory, defaults, ours, found.left_out):
        sizes[path] = size
        if len(sizes) > _FILES_AT_MOST:
            raise ProgramError(_too_large(directory, sizes, f"more than {_FILES_AT_MOST} files"))
    for place in needed:
        path = _relative(place, directory) if place.is_relative_to(directory) else ""
        if path and path not in sizes and not ours.match_file(path):
            sizes[path] = place.stat().st_size  # it is named like data, but the program imports it
    total = sum(sizes.values()) + found.size
    if total > _LIMIT:
        raise ProgramError(_too_large(directory, sizes, f"{shown_size(total)} in {counted(len(sizes), 'file')}"))
    for path in sizes:
        place = directory / path
        try:
            mode = place.stat().st_mode
            found.files.setdefault(path, _File(place.read_bytes(), bool(mode & stat.S_IXUSR)))
        except OSError as error:
            raise ProgramError(
                f"{place}: cannot be read: {error.strerror or error}; name it in {IGNORE_FILE} if it is not needed"
            ) from error
    if found.size > _LIMIT:  # one has grown meanwhile
        raise ProgramError(_too_large(directory, sizes, shown_size(found.size)))
    return found


def _walk(
    place: Path,
    root: Path,
    defaults: GitIgnoreSpec,
    ours: GitIgnoreSpec,
    left_out: list[str],
) -> Iterator[tuple[str, int]]:
    """Yield the files below a directory with their sizes, in the order of their names; note what is left out."""
    try:
        with os.scandir(place) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        left_out.append(f"{_relative(place, root)}/ ({error.strerror})")
        return
    for entry in ordered:
        path = _relative(Path(entry.path), root)
        is_directory = entry.is_dir(follow_symlinks=False)
        shown = f"{path}/" if is_directory else path
        if _is_no_text(path):
            left_out.append(f"{path!a} (a name that is no text)")
            continue
        said = ours.check_file(shown).include
        if said is None:
            said = defaults.match_file(shown) or (is_directory and (Path(entry.path) / "pyvenv.cfg").is_file())
        if said:
            if not entry.name.startswith((".", "__pycache__")):
                left_out.append(shown)
        elif is_directory:
            yield from _walk(Path(entry.path), root, defaults, ours, left_out)
        elif not entry.is_file(follow_symlinks=False):
            left_out.append(f"{path} (no regular file)")
        else:
            yield path, entry.stat(follow_symlinks=False).st_size


def _ours(directory: Path) -> GitIgnoreSpec:
    try:
        lines = (directory / IGNORE_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramError(f"{IGNORE_FILE}: cannot be read: {error}") from error
    try:
        return _patterns(lines)
    except ValueError as error:
        raise ProgramError(f"{IGNORE_FILE}: {error}") from error


def _patterns(lines: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - programs on clusters of this machine do without

    return GitIgnoreSpec.from_lines(lines)


def _relative(path: Path, root: Path) -> str:
    return str(PurePosixPath(path.relative_to(root)))


def _is_no_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return True
    return False


def _too_large(directory: Path, sizes: Mapping[str, int], total: str) -> str:
    lines = [f"the files in {directory} are too large to be brought along: {total}, and a ConfigMap holds 1 MiB"]
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:_SHOWN]
    lines += [f"  {shown_size(size):>9}  {path}" for path, size in largest]
    lines.append(
        f"  what next: name what the program does not need in {directory / IGNORE_FILE}, like in a .gitignore; large "
        "data belongs into a volume of the runtime, large code into an image (--image)"
    )
    return "\n".join(lines)


def shown_size(size: int) -> str:
    """Write a number of bytes."""
    amount, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
