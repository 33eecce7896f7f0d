"""How far a training is, and how long it still needs, from all that its log has told so far.

- What precedes the training (downloads, tokenizing) counts until it begins; evaluations within it do not.
- Whether a counter is that of the whole training or of one epoch is told apart: only the former says when it ends.
"""

from __future__ import annotations

from typing import Final

from trainmaster.controller.cli.follow.display.progress_lines import Reading, read_progress

_PATIENCE: Final = 1000
"""Lines; a bar is written at most ten times a second, and an evaluation may take minutes."""


class LogProgress:
    """What the lines of a log have told so far, of one attempt of a training."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._epochs: int | None = None
        self._epochs_done = 0
        self._from_zero = False
        self._epoch_ended = False
        self._done: float | None = None
        self._total: float | None = None
        self._label = ""
        self._repeats = False
        self._remaining: float | None = None
        self._furthest = 0.0
        self._beside = 0

    @property
    def fraction(self) -> float | None:
        """How much is done, from 0 to 1: of all epochs if their number is known, else of the loop; None if unknown."""
        steps = min(1.0, self._done / self._total) if self._total and self._done is not None else None
        if self._epoch is None or not self._epochs:
            return steps
        # A loop over other data within an epoch, which has no name, would lead back.
        return max(self._furthest, min(1.0, (self._epochs_done + (steps or 0.0)) / self._epochs))

    @property
    def is_whole(self) -> bool:
        """Whether that is how much of the whole training is done."""
        if self._label:
            return False
        return bool(self._epochs) if self._epoch is not None else not self._repeats

    @property
    def remaining(self) -> float | None:
        """Seconds that the training says it still needs; None if it does not say."""
        return self._remaining if self.is_whole and self._epoch is None else None

    @property
    def what(self) -> str:
        """What is counted: `epoch 3/10`, `epoch 3`, the name of a loop; empty for plain steps."""
        if self._label or self._epoch is None:
            return self._label
        # Steps after the end of an epoch are those of the next one.
        is_next = self._epoch_ended and self._done is not None and self._epochs_done != self._epochs
        number = self._epoch + self._from_zero + is_next
        return f"epoch {number}/{self._epochs}" if self._epochs else f"epoch {number}"

    @property
    def steps(self) -> str:
        """How far the innermost loop is, as `120/1000`; empty if that is not known, or told in percents."""
        if self._done is None or self._total is None or not 1 < self._total < 1e9 or self._total % 1:
            return ""
        return f"{self._done:.0f}/{self._total:.0f}"

    def feed(self, line: str) -> None:
        """Take a line, or what there is of one."""
        reading = read_progress(line)
        if reading is None or self._is_beside(reading):
            return
        if reading.epoch is not None:
            self._take_epoch(reading)
        elif not self._label and self._done is not None:
            self._repeats |= self._total != reading.total or (reading.done or 0.0) < self._done
        self._label = reading.label
        if reading.done is not None or reading.epoch_ended:
            self._done, self._total = reading.done, reading.total
        self._remaining = reading.remaining
        if self._epochs:
            self._furthest = self.fraction or 0.0

    def _is_beside(self, reading: Reading) -> bool:
        """Whether this is told by a loop that is not the training: one with a name, or one within that has none.

        The loop that began first is the outer one until it has ended. One that is never ended (a bar that is taken
        away) is given up after a while.
        """
        if reading.label:
            return not self._label and (self._epoch is not None or self._total is not None)
        is_within = (
            reading.epoch is None
            and self._epoch is None
            and not self._label
            and self._total not in {None, reading.total}
            and self._done != self._total
        )
        self._beside = self._beside + 1 if is_within else 0
        return 0 < self._beside < _PATIENCE

    def _take_epoch(self, reading: Reading) -> None:
        epoch = reading.epoch or 0
        self._from_zero |= epoch == 0 or reading.last_epoch
        if reading.epochs is not None:
            self._epochs = reading.epochs + reading.last_epoch
        if epoch != self._epoch:
            self._done = self._total = None
        self._epoch, self._epoch_ended = epoch, reading.epoch_ended
        self._epochs_done = epoch + self._from_zero - (not reading.epoch_ended)


class Pace:
    """How long a training still needs, from how its progress went so far.

    A log that was written before comes in one piece: what is told within a second counts as one observation.
    """

    _AT_LEAST: Final = 3.0
    """Seconds; estimates from less are guesses."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._last: tuple[float, float] | None = None

    def observe(self, fraction: float, now: float) -> None:
        """Take how much is done at a moment, in seconds of any clock; as often as one likes."""
        latest = self._last or self._first
        if self._first is None or latest is None or fraction < latest[1]:
            self._first, self._last = (now, fraction), None
        elif fraction > latest[1]:
            if self._last is None and now - self._first[0] < 1.0:
                self._first = (now, fraction)
            else:
                self._last = (now, fraction)

    def remaining(self, now: float) -> float | None:
        """Return how many seconds are left at a moment; None if that cannot be known yet."""
        if self._first is None or self._last is None:
            return None
        took, gained = self._last[0] - self._first[0], self._last[1] - self._first[1]
        if took < self._AT_LEAST or gained <= 0:
            return None
        return max(0.0, (1.0 - self._last[1]) * took / gained - (now - self._last[0]))
