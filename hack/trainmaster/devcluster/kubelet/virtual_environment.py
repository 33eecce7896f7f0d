"""The Python environment of a container: a virtual environment of its own over the one that the cluster runs in.

It stands for the file system of an image, into which a container may install what it likes. Guarantees:
- `python`, and every Python program of the environment below, runs in it (`sys.executable`), and sees first what was
  installed into it, then what the environment below has. That may be a virtual environment itself, conda's, or a
  system's.
- Nothing that `pip install` does, with `--user` or without, changes the environment below: for pip, what lies outside
  of a virtual environment cannot be removed, and a newer version in it comes first.
- It costs a dozen system calls: no process is started, no file is copied, nothing is linked package by package.

    <container>/python-<attempt>/
      pyvenv.cfg                                      what makes it a virtual environment
      bin/                                            python, and the programs that are installed
      lib/python3.X/site-packages/trainmaster.pth     the packages of the environment below
      scripts -> <root>/python/scripts                its programs, started with <container>/python-<attempt>/bin/python

An absolute path such as `/opt/venv/bin/python` means what it says: the environment below.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shlex
import site
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_HEAD: Final = 2048
"""Bytes at the beginning of a program in which its interpreter stands."""

_LONG_SHEBANG: Final = "'''exec' "
"""What installers write into the second line where the interpreter's path is too long or has spaces."""

_PACKAGES_BELOW: Final = """\
import site; site.getsitepackages = site.getsitepackages if sys.prefix == sys.base_prefix else \
lambda prefixes=None, own=site.getsitepackages: \
own(prefixes) if prefixes is not None else own([sys.prefix]) + {directories!a}
"""
"""Python asks this function which directories come after those of the virtual environment and of the user. Its own
answer would be those of the interpreter, which a virtual environment below may not see. An interpreter of the same
version that belongs to no virtual environment, such as /usr/bin/python3, reads this as well, and keeps its own."""


@dataclass(frozen=True, slots=True)
class VirtualEnvironment:
    """The virtual environment of one container."""

    directory: Path

    @property
    def search_path(self) -> list[Path]:
        """Where its programs are: those that are installed into it, then those of the environment below."""
        return [self.directory / "bin", self.directory / "scripts"]

    @property
    def variables(self) -> dict[str, str]:
        """What programs know it by; what is installed for the user is installed into it as well."""
        directory = str(self.directory)
        return {"VIRTUAL_ENV": directory, "PYTHONUSERBASE": directory}


@dataclass(slots=True, kw_only=True)
class BaseEnvironment:
    """The environment below those of all containers."""

    directory: Path
    """A directory of its own, for what all containers share."""

    interpreter: Path
    site_packages: Sequence[str]
    """The directories with its packages, in the order in which they are searched; they need not exist yet."""

    programs: Sequence[Path]
    """The directories of its programs; of those of the same name the first counts."""

    pip: Path | None = None
    """The wheel of a pip to lend to containers, where this environment has none; None: it has its own."""

    _seen: list[int] = field(default_factory=list)

    @property
    def scripts(self) -> Path:
        """Where the programs of this environment are that have to run in those of containers."""
        return self.directory / "scripts"

    @classmethod
    def of_this_process(cls, directory: Path) -> BaseEnvironment:
        """Describe the environment that this process runs in."""
        of_user = site.ENABLE_USER_SITE
        directories = [*([site.getusersitepackages()] if of_user else ()), *site.getsitepackages()]
        programs = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
        if of_user:
            programs.append(Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))))
        return cls(
            directory=directory.absolute(),
            # What `venv` asks as well: the interpreter outside of all virtual environments.
            interpreter=Path(getattr(sys, "_base_executable", "") or sys.executable),
            site_packages=list(dict.fromkeys(directories)),
            programs=list(dict.fromkeys(programs)),
            pip=_bundled_pip() if importlib.util.find_spec("pip") is None else None,
        )

    def virtual_environment(self, directory: Path) -> VirtualEnvironment:
        """Make one for a container, in a directory that does not exist."""
        self.refresh()
        directory = directory.absolute()
        below = _PACKAGES_BELOW.format(directories=list(self.site_packages))
        if self.pip is not None:
            below += f"{self._unpacked(self.pip)}\n"
        packages, compiled = (str(directory) + inside for inside in _packages())
        os.makedirs(packages)  # noqa: PTH103 - every container waits for this
        Path(packages, "trainmaster.pth").write_text(below, encoding="utf-8")
        if compiled != packages:
            (directory / "lib64").symlink_to("lib")
        (directory / "pyvenv.cfg").write_text(
            f"home = {self.interpreter.parent}\n"
            # Else pip would refuse to install for the user, and Python to look there.
            "include-system-site-packages = true\n"
            f"version = {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}\n",
            encoding="utf-8",
        )
        (directory / "bin").mkdir()
        for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
            (directory / "bin" / name).symlink_to(self.interpreter)
        (directory / "scripts").symlink_to(self.scripts)
        return VirtualEnvironment(directory)

    def refresh(self) -> None:
        """Take note of programs that were installed into this environment, or removed, since the last time."""
        seen = [_changed_at(directory) for directory in self.programs]
        if seen == self._seen:
            return
        self.scripts.mkdir(mode=0o700, parents=True, exist_ok=True)
        wanted = self._wrappers()
        for stale in {path.name for path in self.scripts.iterdir()} - wanted.keys():
            (self.scripts / stale).unlink()
        for name, text in wanted.items():
            # Whoever starts it meanwhile has the old one or the new one.
            draft = self.scripts / f".{name}"
            draft.write_text(text, encoding="utf-8")
            draft.chmod(0o700)
            draft.replace(self.scripts / name)
        self._seen = seen

    def _unpacked(self, wheel: Path) -> Path:
        """Unpack a wheel once: run from the archive, pip would be compiled each time, for seconds."""
        directory = self.directory / wheel.stem
        if not directory.is_dir():
            draft = directory.with_name(f".{directory.name}")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(draft)
            draft.rename(directory)
        return directory

    def _wrappers(self) -> dict[str, str]:
        """Build what starts each program of this environment with the Python of the container, by its name.

        A program names the Python of its environment by an absolute path. A wrapper finds that of the container by its
        own path, `<virtual environment>/scripts/<name>`.
        """
        found: dict[str, str] = {}
        interpreters = {os.path.realpath(directory) for directory in (*self.programs, self.interpreter.parent)}
        for directory in self.programs:
            with contextlib.suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    options = _options(entry, interpreters)
                    if options is not None and entry.name not in found:
                        found[entry.name] = _wrapper([*options, entry.path])
        for name in ("pip", "pip3"):  # else that of another Python would be found, and install into that
            found.setdefault(name, _wrapper(["-m", "pip"]))
        return found


def _wrapper(arguments: Sequence[str]) -> str:
    return f'#!/bin/sh\nexec "${{0%/*/*}}/bin/python" {shlex.join(arguments)} "$@"\n'


def _options(entry: os.DirEntry[str], interpreters: set[str]) -> list[str] | None:
    """Give the options with which a program runs one of these interpreters; None if it is no such program."""
    try:
        if not entry.is_file() or not os.access(entry.path, os.X_OK):
            return None
        with open(entry.path, "rb") as program:  # noqa: PTH123 - thousands of them in a system's directory
            head = program.read(_HEAD)
        if not head.startswith(b"#!"):
            return None
        first, second, *_ = [*head.decode(errors="replace").split("\n"), ""]
        words = shlex.split(second[len(_LONG_SHEBANG) :]) if second.startswith(_LONG_SHEBANG) else first[2:].split()
    except (OSError, ValueError):  # unreadable, gone by now, or no command
        return None
    if not words or not Path(words[0]).name.startswith("python"):
        return None
    if os.path.realpath(Path(words[0]).parent) not in interpreters:
        return None
    return [word for word in words[1:] if not word.startswith("$")]


@functools.cache
def _packages() -> tuple[str, str]:
    """Give the directories of packages, and of compiled ones, inside of a virtual environment; systems differ."""
    inside = {"base": "", "platbase": ""}
    return sysconfig.get_path("purelib", "venv", vars=inside), sysconfig.get_path("platlib", "venv", vars=inside)


def _changed_at(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0


def _bundled_pip() -> Path | None:
    """Find the wheel of pip that most Pythons bring along; environments made by uv have no other pip."""
    spec = importlib.util.find_spec("ensurepip")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "_bundled").glob("pip-*.whl"))), None)
