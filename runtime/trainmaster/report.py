"""Report the progress of a training to Trainmaster, from the script itself:

    from trainmaster.report import progress

    progress(percent=45, metrics={"loss": 0.2347}, checkpoint=True)

- It is one file, which imports the standard library alone: copied into an image it works without the rest, also with
  Pythons older than Trainmaster itself needs. `python -m trainmaster.report` prints it.
- It never raises, and never waits: a thread sends, and a server that is gone costs one warning. Outside of a cluster,
  or where the cluster takes no reports, and on all ranks but the first, it does nothing.
- Values stay until other ones are reported; they are sent every ten seconds at most, and at once with a checkpoint. At
  the end of the process there are some seconds for what was not sent yet.

`HuggingFaceCallback` and `LightningCallback` do it for trainers of these libraries, which are imported for that only.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

INTERVAL = 10.0
"""Seconds between reports, and until one that failed is tried again."""

TIMEOUT = 5.0
"""Seconds that one request may take, and the end of the process may wait."""

_URL, _AUTHORITY, _TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{each}" for each in ("URL", "CA_CERT", "TOKEN"))
_RANKS = ("RANK", "PET_NODE_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JAX_PROCESS_ID", "JOB_COMPLETION_INDEX")
"""Variables that tell the rank of a process, or at least of its node; the first that is set counts."""

_MOST_METRICS, _LONGEST = 256, 64  # what the API takes


def progress(
    *,
    percent: float | None = None,
    metrics: Mapping[str, Any] | None = None,
    checkpoint: bool = False,
    world_size: int | None = None,
    remaining_seconds: float | None = None,
) -> None:
    """Report how far the training is.

    Args:
        percent: How much of it is done, from 0 to 100.
        metrics: The latest numbers, for instance the loss.
        checkpoint: Whether a checkpoint has just been written: what a failure costs is counted from there.
        world_size: How many processes train together; by default what torchrun says.
        remaining_seconds: How long the rest will take.
    """
    try:
        if _reporter.is_on:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            fields = {
                "progressPercentage": None if percent is None else max(0, min(int(percent), 100)),
                "estimatedRemainingSeconds": None if remaining_seconds is None else max(0, int(remaining_seconds)),
                "lastCheckpointTime": now if checkpoint else None,
                "worldSize": _number(os.environ.get("WORLD_SIZE")) if world_size is None else int(world_size),
                "lastUpdatedTime": now,
            }
            _reporter.update(fields, {str(name)[:_LONGEST]: _text(each) for name, each in (metrics or {}).items()})
    except Exception as error:
        _reporter.warn(error)


def flush(timeout: float = TIMEOUT) -> None:
    """Wait until what was reported is sent, or cannot be; needed before `os._exit` only."""
    _reporter.flush(timeout)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _text(value: Any) -> str:
    try:
        return f"{float(value):.6g}"
    except (TypeError, ValueError):
        return str(value)[:_LONGEST] or "-"


class _Reporter:
    """What was reported last, and the thread that sends it."""

    def __init__(self) -> None:
        rank = next((each for name in _RANKS if (each := os.environ.get(name))), "0")
        self.is_on = bool(os.environ.get(_URL)) and rank == "0"
        self._changed = threading.Condition()
        self._status: dict[str, Any] = {}
        self._metrics: dict[str, str] = {}
        self._version = self._sent = self._failures = 0
        """Of the status: the number of updates, how many of them were sent, and how often that failed."""
        self._due = 0.0
        self._is_urgent = False
        self._thread: threading.Thread | None = None

    @property
    def is_due(self) -> bool:
        """Whether a report would be sent now."""
        return self.is_on and time.monotonic() >= self._due

    def update(self, fields: dict[str, Any], metrics: dict[str, str]) -> None:
        """Note what is reported."""
        with self._changed:
            self._status.update((name, value) for name, value in fields.items() if value is not None)
            self._metrics.update(metrics)
            self._version += 1
            self._is_urgent |= fields["lastCheckpointTime"] is not None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trainmaster-report", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float) -> None:
        """Wait until all is sent, or that fails, or for so long."""
        with self._changed:
            failures, self._is_urgent = self._failures, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._sent == self._version or self._failures > failures, timeout)

    def warn(self, error: Exception) -> None:
        """Tell of an error, once."""
        if not self._failures:
            logging.getLogger("trainmaster.report").warning("progress is not reported: %s", error)
        self._failures += 1

    def _run(self) -> None:
        while True:
            with self._changed:
                while (wait := self._seconds_to_wait()) is None or wait > 0:
                    self._changed.wait(wait)
                version, self._is_urgent = self._version, False
                metrics = [{"name": name, "value": value} for name, value in self._metrics.items()][:_MOST_METRICS]
                body = json.dumps({"trainerStatus": {**self._status, "metrics": metrics}}).encode()
            problem, wait = None, INTERVAL
            try:
                _send(body)
            except Exception as error:
                problem, wait = error, max(INTERVAL, _retry_after(error))
            with self._changed:
                self._due = time.monotonic() + wait
                if problem is None:
                    self._sent = version
                else:
                    self._is_urgent = False
                    self.warn(problem)
                self._changed.notify_all()

    def _seconds_to_wait(self) -> float | None:
        """Return how long to wait before the next report; None: there is nothing to report."""
        if self._sent == self._version:
            return None
        return 0.0 if self._is_urgent else self._due - time.monotonic()


def _send(body: bytes) -> None:
    """Send a report; token and authority are read anew, since both are replaced while pods run."""
    with open(os.environ[_TOKEN], encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes time to import
        token = file.read().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ[_URL], body, headers)  # noqa: S310 - the URL is the manager's
    trust = ssl.create_default_context(cafile=os.environ[_AUTHORITY])
    urllib.request.urlopen(request, context=trust, timeout=TIMEOUT).close()  # noqa: S310 - likewise


def _retry_after(error: Exception) -> float:
    told = error.headers.get("Retry-After") if isinstance(error, urllib.error.HTTPError) else None
    return float(_number((told or "")[:4]) or 0)  # more seconds than a thread could wait end it


class _HuggingFace:
    """What a callback of Hugging Face's `Trainer` does."""

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_more: Any) -> None:
        percent = 100 * state.global_step / state.max_steps if state.max_steps > 0 else None
        progress(percent=percent, metrics=logs)

    def on_save(self, *_arguments: Any, **_more: Any) -> None:
        progress(checkpoint=True)


class _Lightning:
    """What a callback of Lightning does. A checkpoint counts one step later: the hook comes before it is written."""

    _is_saved = False

    def on_save_checkpoint(self, *_arguments: Any) -> None:
        self._is_saved = True

    def on_train_batch_end(self, trainer: Any, *_arguments: Any) -> None:
        if self._is_saved or _reporter.is_due:  # numbers on a device take time to read
            saved, self._is_saved = self._is_saved, False
            steps = float(trainer.estimated_stepping_batches)
            percent = 100 * trainer.global_step / steps if 0 < steps < float("inf") else None
            progress(percent=percent, metrics=trainer.callback_metrics, checkpoint=saved)

    def on_train_end(self, *_arguments: Any) -> None:
        if self._is_saved:
            progress(checkpoint=True)


_CALLBACKS = {
    "HuggingFaceCallback": (_HuggingFace, ("transformers",), "TrainerCallback"),
    "LightningCallback": (_Lightning, ("lightning.pytorch", "pytorch_lightning"), "Callback"),
}


def __getattr__(name: str) -> Any:
    """Make a callback, by the library that is there."""
    if name not in _CALLBACKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    what, modules, base = _CALLBACKS[name]
    for module in modules:
        try:
            library = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if module == modules[-1]:
                raise ImportError(f"{name} needs {modules[0]}") from error
        else:
            globals()[name] = made = type(name, (what, getattr(library, base)), {"__module__": __name__})
            return made
    raise AssertionError


def _start_anew() -> None:
    global _reporter  # noqa: PLW0603 - a process that was forked has no thread
    _reporter = _Reporter()


_reporter = _Reporter()
os.register_at_fork(after_in_child=_start_anew)
atexit.register(lambda: _reporter.flush(TIMEOUT))

if __name__ == "__main__":
    with open(__file__, encoding="utf-8") as own:  # noqa: PTH123 - as above
        sys.stdout.write(own.read())
