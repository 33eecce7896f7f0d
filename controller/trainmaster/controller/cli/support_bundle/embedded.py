"""What an embedded cluster keeps beside its API: its logs and those of its manager, in its state directory.

It is another program as far as this one is concerned (see `cli.cluster`): these are the files that its users see.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import aiohttp

from trainmaster.controller.cli.support_bundle.bundle import Bundle, end_of_log
from trainmaster.controller.cli.support_bundle.redaction import Redactor

_LOGS: Final = ("cluster.log", "manager.log")
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)


def gather_files(bundle: Bundle, redactor: Redactor, directory: Path) -> str | None:
    """Gather the logs of an embedded cluster; returns the configuration file of its manager, if it has one."""
    if token := _read(bundle, directory / "token"):
        redactor.learn_value(token.strip())
    for name in _LOGS:
        _add_log(bundle, directory / name)
    return _read(bundle, directory / "manager.yaml")


async def gather_metrics(bundle: Bundle, address: str, *, secure: bool) -> None:
    """Gather the metrics of a manager that serves them on this machine."""
    url = f"{'https' if secure else 'http'}://{address}/metrics"
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            # Nothing is sent that others must not see, and a certificate of ours is not for this name.
            session.get(url, ssl=False) as response,
        ):
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
        bundle.lacks("metrics of the manager", f"{url}: {str(error) or type(error).__name__}")
        return
    if response.status == 200:
        bundle.add("embedded/metrics.txt", text)
    else:
        bundle.lacks("metrics of the manager", f"{url}: HTTP status {response.status}")


def _add_log(bundle: Bundle, path: Path) -> None:
    most = bundle.log_bytes
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            text = end_of_log(file.read(), is_cut=size > most)
    except FileNotFoundError:
        bundle.lacks(str(path), "it does not exist")
    except OSError as error:
        bundle.lacks(str(path), error.strerror or str(error))
    else:
        remark = f"the last {most} bytes of {size}" if size > most else ""
        bundle.add(f"embedded/{path.name}", text, remark=remark)


def _read(bundle: Bundle, path: Path) -> str | None:
    """Read a small file, if it is there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        bundle.lacks(str(path), error.strerror or str(error))
        return None
