"""The configuration files change while the manager runs: what may take effect does, and of the rest is told.

Guarantees:
- They are read again and again, so a mounted ConfigMap is followed, whose files the kubelet swaps behind a link.
- Options that are marked `RELOADED` take effect within ten seconds. Of others it is told once that they need a restart.
- Files that cannot be used change nothing: it is told what is wrong, and the old values stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import structlog
from pydantic import BaseModel

from trainmaster.controller.configuration.effective import Override, effective_configuration
from trainmaster.controller.configuration.loading import ConfigurationInvalid
from trainmaster.controller.configuration.types import RELOADED, Configuration
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.metrics.configuration import LAST_RELOAD_SUCCESS_TIMESTAMP, LAST_RELOAD_SUCCESSFUL

log = structlog.get_logger(__name__)

INTERVAL: Final = 10.0
"""Seconds between two looks at the files."""


class ConfigurationReloader:
    """Follows the files of a running manager.

    Args:
        apply: Called with each new configuration, to put the options in effect that are marked `RELOADED`. What it
            cannot use is a `ConfigurationInvalid`; the old values stay then.
        reloads: Tells of an entry of a mapping that is marked so, by its path, whether it takes effect.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        configuration: Configuration,
        *,
        feature_gates: str,
        overrides: Sequence[Override] = (),
        apply: Callable[[Configuration], None],
        reloads: Callable[[str], bool] = lambda _: False,
        clock: Clock | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._started_with = self._current = configuration
        self._feature_gates = feature_gates
        self._overrides = overrides
        self._apply = apply
        self._reloads = reloads
        self._clock = clock or SystemClock()
        self._error = ""
        self._waiting: list[str] = []
        self._note_success()

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL)
            self.reload()

    def reload(self) -> None:
        """Read the files, and put in effect what may be."""
        try:
            new = effective_configuration(
                *self._paths, feature_gates=self._feature_gates, overrides=self._overrides
            ).configuration
            if new == self._current and not self._error:
                return
            if any(is_reloaded for _, is_reloaded in changed_options(self._current, new, reloads=self._reloads)):
                self._apply(new)
        except ConfigurationInvalid as error:
            LAST_RELOAD_SUCCESSFUL.set(0)
            if str(error) != self._error:
                self._error = str(error)
                log.warning("the configuration file cannot be used any more; the old values stay", error=self._error)
            return
        self._error = ""
        self._note_success()
        # What could not take effect after all, `reloads` tells now.
        changed = list(changed_options(self._current, new, reloads=self._reloads))
        reloaded = [path for path, is_reloaded in changed if is_reloaded]
        self._current = new
        changed_since_start = changed_options(self._started_with, new, reloads=self._reloads)
        waiting = [path for path, is_reloaded in changed_since_start if not is_reloaded]
        if waiting and waiting != self._waiting:
            log.warning(
                "the configuration file has changed; some options need a restart", options=waiting, reloaded=reloaded
            )
        elif reloaded or not changed or (self._waiting and not waiting):
            log.info("the configuration file is in effect", reloaded=reloaded)
        self._waiting = waiting

    def _note_success(self) -> None:
        LAST_RELOAD_SUCCESSFUL.set(1)
        LAST_RELOAD_SUCCESS_TIMESTAMP.set(self._clock.now().timestamp())


def changed_options(
    old: BaseModel, new: BaseModel, path: str = "", *, reloads: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[str, bool]]:
    """Return the options that differ, each with whether it takes effect in a running manager.

    A mapping that may take effect is compared entry by entry, and `reloads` tells of each of them.
    """
    for name, field in type(old).model_fields.items():
        before, after, place = getattr(old, name), getattr(new, name), f"{path}{field.alias}"
        if isinstance(before, BaseModel):
            yield from changed_options(before, after, f"{place}.", reloads=reloads)
        elif before != after:
            extra = field.json_schema_extra
            is_reloaded = isinstance(extra, dict) and RELOADED.items() <= extra.items()
            if is_reloaded and isinstance(before, dict):
                names = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
                yield from ((f"{place}.{key}", reloads(f"{place}.{key}")) for key in sorted(names))
            else:
                yield place, is_reloaded
