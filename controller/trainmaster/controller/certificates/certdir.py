"""The directory from which the servers take their certificate (`webhook.certDir`), written as the kubelet writes one.

Guarantees:
- The files change together: each is a link into `..data`, and that is a link to the directory of the present set, which
  is replaced in one step. Whatever stops the process leaves the old set or the new one.
- Only their owner can read them. The key of the authority is not among them.
- A pair whose halves do not fit is not written: the old one stays.
- A directory that somebody else fills, as the kubelet does with a Secret, is left alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from trainmaster.controller.certificates.secret import CA_CERTIFICATE, CERTIFICATE, KEY, SecretData

_DATA: Final = "..data"
_SET_PREFIX: Final = "..trainmaster-"

_FILES: Final = (CA_CERTIFICATE, CERTIFICATE, KEY)


class CertDir:
    """The directory.

    Args:
        path: Where it is; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, data: SecretData) -> str | None:
        """Write what servers and trainers need; returns why that was not possible."""
        wanted = {CA_CERTIFICATE: data.ca_certificate}
        if data.pair_problem is None:
            wanted |= {CERTIFICATE: data.certificate, KEY: data.key}
        wanted = {name: content for name, content in wanted.items() if content}
        if self._holds(wanted):
            return None
        if self._is_mounted():
            return (
                f"{self._path} is a mounted volume that still holds other files than the Secret; its kubelet brings "
                "them within minutes if it is that Secret, otherwise mount an emptyDir there"
            )
        try:
            self._replace({**self._present(), **wanted})
        except OSError as error:
            return (
                f"cannot write {error.filename or self._path}: {error.strerror}; mount an emptyDir at webhook.certDir, "
                "writable for the user of the manager, or set another webhook.certDir"
            )
        return None

    def _holds(self, wanted: dict[str, bytes]) -> bool:
        present = self._present()
        return all(present.get(name) == content for name, content in wanted.items())

    def _present(self) -> dict[str, bytes]:
        found = {}
        for name in _FILES:
            with suppress(OSError):
                found[name] = (self._path / name).read_bytes()
        return found

    def _is_mounted(self) -> bool:
        """Tell whether somebody else keeps a set here."""
        try:
            return not (self._path / _DATA).readlink().name.startswith(_SET_PREFIX)
        except OSError:
            return False

    def _replace(self, files: dict[str, bytes]) -> None:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=_SET_PREFIX, dir=self._path))  # mode 0700
        try:
            for name, content in files.items():
                descriptor = os.open(made / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
            self._link(_DATA, made.name)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        for name in files:
            target = f"{_DATA}/{name}"
            if not (self._path / name).is_symlink() or str((self._path / name).readlink()) != target:
                self._link(name, target)
        for left in self._path.glob(f"{_SET_PREFIX}*"):
            if left.name != made.name:
                shutil.rmtree(left, ignore_errors=True)

    def _link(self, name: str, target: str) -> None:
        """Have a name lead to a target, in one step."""
        temporary = self._path / f"{_SET_PREFIX}link"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(self._path / name)
