"""How far a training is, and how long it still needs, as the counters in its log tell.

Nobody promises anything about lines of logs: what is not plainly a counter of epochs or steps is none, and what is
named as an evaluation or a preparation does not count.
"""

from __future__ import annotations

import re
from typing import Final

_READ_AT_MOST: Final = 600
"""Characters of a line; what tells of progress is short."""

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")
_EPOCH: Final = re.compile(
    r"(?<![\w/.-])epochs?\s*[:=#]?\s*[\[(]?\s*(?P<epoch>\d+)(?:\s*(?:/|of)\s*(?P<epochs>\d+))?", re.IGNORECASE
)
_STEPS: Final = re.compile(
    r"%\|[^|]*\|\s*(\d+)/(\d+)\s*\["  # tqdm: " 45%|####5     | 45/100 [00:12<00:15,  3.61it/s]"
    r"|(?:^|\| )\s*(\d+)/(\d+) (?:\[[=>.]{3}|━{3}|- \d+s\b)"  # Keras: "45/100 [====>.....]", "100/100 - 3s - loss: 0.1"
    r"|epoch\s*:?\s*\[?\d+\]?\s*\[\s*(\d+)/(\d+)"  # examples of PyTorch: "Train Epoch: 1 [640/60000 (1%)]"
    r"|(?<![\w/.-])(?:steps?|iter(?:ation)?s?|batch(?:es)?)\s*[:=#]?\s*[\[(]?\s*(\d+)\s*(?:/|of)\s*(\d+)(?![\w%/-]|\.\d)",
    re.IGNORECASE,
)
_NOT_TRAINING: Final = re.compile(
    r"\b(?:val|valid\w*|eval\w*|test\w*|predict\w*|sanity|download\w*|load\w*|map|tokeniz\w*)\b", re.IGNORECASE
)
_AT_LEAST: Final = 3.0
"""Seconds; estimates from less are guesses."""


class LogProgress:
    """What the log of one attempt of a training has told so far; times are in seconds of any clock."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._epochs: int | None = None
        self._from_zero = False
        self._steps: tuple[int, int] | None = None
        """How many are done, of how many: of the epoch, or of the training."""

        self._repeats = False
        """Whether steps began again without an epoch that is named."""

        self.fraction: float | None = None
        """How much of the whole training is done, from 0 to 1; None if that is not known."""

        self._first: tuple[float, float] | None = None
        """A time, and the fraction then."""

        self._last: tuple[float, float] | None = None

    @property
    def what(self) -> str:
        """What is counted: `epoch 3/10`, `45/100`, or both."""
        of = f"/{self._epochs}" if self._epochs else ""
        epoch = "" if self._epoch is None else f"epoch {self._epoch}{of}"
        steps = "" if self._steps is None else f"{self._steps[0]}/{self._steps[1]}"
        return "  ".join(filter(None, (epoch, steps)))

    def feed(self, line: str, now: float) -> None:
        """Take a line, or what there is of one; of what was drawn over, what stands last counts."""
        text = _ESCAPES.sub("", line.rstrip("\r\n").rpartition("\r")[2][:_READ_AT_MOST])
        epoch, steps = _EPOCH.search(text), _STEPS.search(text)
        found = steps or epoch
        if found is None or _NOT_TRAINING.search(text[: found.start()]):
            return
        ends = False
        if epoch is not None:
            self._take_epoch(int(epoch["epoch"]), epoch["epochs"])
            # Behind the number of an epoch that has ended stands what came of it.
            ends = steps is None and any(map(str.isdigit, text[epoch.end() :]))
        if steps is not None:
            self._take_steps(*(int(each) for each in steps.groups() if each is not None))
        self._observe(self._fraction(ends=ends), now)

    def remaining(self, now: float) -> float | None:
        """Return how many seconds are left, from how the progress went so far; None if that is not known yet."""
        if self.fraction is None or self._first is None or self._last is None:
            return None
        took, gained = self._last[0] - self._first[0], self._last[1] - self._first[1]
        if took < _AT_LEAST or gained <= 0:
            return None
        return max(0.0, (1.0 - self._last[1]) * took / gained - (now - self._last[0]))

    def _take_epoch(self, epoch: int, epochs: str | None) -> None:
        if epoch != self._epoch:
            self._steps = None
        self._epoch = epoch
        self._epochs = int(epochs) if epochs else self._epochs
        self._from_zero |= epoch == 0

    def _take_steps(self, done: int, total: int) -> None:
        if self._epoch is None and self._steps is not None:
            self._repeats |= total == self._steps[1] and done < self._steps[0]
        if 0 < total >= done:
            self._steps = done, total

    def _fraction(self, *, ends: bool) -> float | None:
        of_steps = self._steps[0] / self._steps[1] if self._steps is not None else 0.0
        if self._epoch is None:
            return None if self._repeats or self._steps is None else of_steps
        if not self._epochs:
            return None
        done = self._epoch - (not self._from_zero) + (1 if ends else of_steps)
        # A loop over other data within an epoch would lead back.
        return max(self.fraction or 0.0, min(1.0, done / self._epochs))

    def _observe(self, fraction: float | None, now: float) -> None:
        if fraction is None or (self.fraction is not None and fraction < self.fraction):
            self._first = self._last = None
        self.fraction = fraction
        if fraction is None:
            return
        # A log that was written before comes in one piece: what is told within a second counts as one observation.
        if self._first is None or now - self._first[0] < 1.0:
            self._first = (self._first or (now,))[0], fraction
        elif self._last is None or fraction > self._last[1]:
            self._last = now, fraction
