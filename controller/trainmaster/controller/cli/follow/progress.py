"""How far a training is, and how long it still needs: from what it reports, else from what its log tells.

- What precedes the training (downloads, tokenizing) counts until it begins; evaluations within it do not.
- Whether a counter is that of the whole training or of one epoch is told apart: only the former says when it ends.
- Nobody promises anything about lines of logs, so what is not plainly a counter of the training is none: dates, paths,
  versions, fractions beside other words, evaluations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_READ_AT_MOST: Final = 600
"""Characters of a line; what tells of progress is short."""

_PREFIX: Final = re.compile(
    r"^(?:(?:[a-z0-9.-]+ )?(?:(?:rank|node|launcher|master|chief|worker)(?: \d+)? (?:\(ranks \d+-\d+\) )?)?\| "
    r"|\[(?:default|rank)\d+\]:\s?)"
)
"""Of which job, node or rank a line is, as we say it and as torchrun does."""

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")

_BAR: Final = re.compile(
    # tqdm, with its size suffixes: "Epoch 1:  45%|####5     | 45/100 [00:12<00:15,  3.61it/s, loss=0.1]"
    r"(?P<label>[^|\r\n]*?)(?P<percent>\d{1,3})%\|[^|]*\|\s*(?P<done>[\d.]+)(?P<done_unit>[kMGT]?)"
    r"/(?P<total>[\d.]+)(?P<total_unit>[kMGT]?)\s*\[(?:[\d:]+|\?)<(?P<remaining>[\d:]+|\?)"
)
_KERAS: Final = re.compile(
    # "45/100 [====>.....] - ETA: 3s", "45/100 ━━━━━━━━ 3s 30ms/step" and, without a bar, "100/100 - 3s - loss: 0.1"
    r"^\s*(?P<done>\d+)/(?P<total>\d+) (?:\[[=>.]{3,}\]|━{3,}|- \d+s\b)(?! *\d+/)"
)
_RICH: Final = re.compile(
    # Lightning: "Epoch 3/9  ━━━━━━━╸━━━━━━━ 45/100 0:00:12 • 0:00:15 3.61it/s", where 9 is the number of the last epoch
    r"(?:^|\b)Epoch (?P<epoch>\d+)/(?P<last>\d+)\s+[━╸╺ ]{3,}\s*(?P<done>\d+)/(?P<total>\d+)"
)
_LOOPS: Final = re.compile(
    # Examples of PyTorch print "Epoch: [3][  10/5005]" and "Train Epoch: 1 [640/60000 (1%)]", mmengine
    # "Epoch(train) [1][ 50/100]", timm "Train: 0 [  50/1251 (  4%)]".
    r"(?<![\w/.-])(?:(?:train )?epoch|train)(?:\(train\))?\s*:?\s*\[?(?P<epoch>\d+)\]?:?\s*"
    r"\[\s*(?P<done>\d+)/\s*(?P<total>\d+)\s*(?:\(\s*\d+\s*%\s*\))?\s*\]",
    re.IGNORECASE,
)
_COUNTER: Final = re.compile(
    r"(?<![\w/.-])(?:(?P<epoch>epochs?|ep)|(?:global[ _]?|train(?:ing)?[ _]?)?"
    r"(?:steps?|iter(?:ation)?s?|batch(?:es)?|rounds?|updates?))\s*[#:=]?\s*"
    r"(?P<open>[\[(]\s*)?(?P<done>\d+)\s*(?:/|of|out of)\s*(?P<total>\d+)(?(open)\s*[\])]|(?![\w%-]|\s*/|[.:]\d))",
    re.IGNORECASE,
)
_BRACKET: Final = re.compile(
    # "[12/100] loss 0.3", at the beginning of a line but for the time, a level, or that this is training
    r"^[\s\d:.,TZ+-]*(?:\[?(?:debug|info|warning)\]?[\s:|-]*)?(?:training|train|progress)?[\s:-]*"
    r"\[\s*(?P<done>\d+)\s*/\s*(?P<total>\d+)\s*\]",
    re.IGNORECASE,
)
_PERCENT: Final = re.compile(
    r"\b(?:progress|completed?)\s*[:=]?\s*(?P<before>\d{1,3}(?:\.\d+)?)\s?%"
    r"|(?<![\d.])(?P<after>\d{1,3}(?:\.\d+)?)\s?% (?:done|completed?|finished)\b",
    re.IGNORECASE,
)
_EPOCH_LABEL: Final = re.compile(
    r"(?<![\w/.-])epoch\s*[:=#]?\s*\[?(?P<epoch>\d+)\]?(?:\s*(?:/|of)\s*(?P<epochs>\d+))?", re.IGNORECASE
)
_YOLO: Final = re.compile(r"^\s*(?P<epoch>\d+)/(?P<epochs>\d+)\s+[\d.]+[GM]\s")
_EVALUATION: Final = re.compile(
    r"\b(?:val|valid(?:ation|ating)?|eval(?:uation|uating)?|test(?:ing)?|predict(?:ion|ing)?|sanity)\b", re.IGNORECASE
)
_TRAINING: Final = re.compile(
    r"^(?:train(?:ing)?|steps?|iter(?:ation)?s?|batch(?:es)?|fit(?:ting)?|epochs?)?$", re.IGNORECASE
)
_BEGINS: Final = re.compile(r"\b(?:start\w*|begin\w*)\b", re.IGNORECASE)
_ENDS: Final = re.compile(r"\d|\b(?:finish\w*|done|complet\w*|end\w*|took)\b", re.IGNORECASE)
_UNITS: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

_PATIENCE: Final = 1000
"""Lines; a bar is written at most ten times a second, and an evaluation may take minutes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one line tells of the progress."""

    epoch: int | None = None
    """The number of the epoch that is named, as it is printed."""

    epochs: int | None = None
    epoch_ended: bool = False
    """Whether the line comes at the end of that epoch, not at its beginning or within."""

    last_epoch: bool = False
    """Whether `epochs` is not a number of epochs but that of the last one, counted from 0."""

    done: float | None = None
    total: float | None = None
    """Steps of the innermost loop; of percents, the fraction of 1."""

    label: str = ""
    """What a loop is that is not that of the training; empty for the training itself."""

    remaining: float | None = None
    """Seconds until the end of that loop, as the line tells them."""


def read_progress(line: str) -> Reading | None:
    """Read what a line of a log tells of the progress; of a progress bar that was drawn over, what stands last."""
    if "/" not in line and "%" not in line and " of " not in line:
        return None
    text = line.rstrip("\r\n").rpartition("\r")[2][:_READ_AT_MOST]
    text = _PREFIX.sub("", _ESCAPES.sub("", text).replace("\b", ""))
    reading = _read_bar(text) or _read_loops(text) or _read_counters(text)
    if reading is None or not _is_plausible(reading):
        return None
    return reading


def _read_bar(text: str) -> Reading | None:
    if "%|" in text and (found := _BAR.search(text)):
        done = float(found["done"]) * _UNITS[found["done_unit"]] if _is_number(found["done"]) else -1
        total = float(found["total"]) * _UNITS[found["total_unit"]] if _is_number(found["total"]) else 0
        label = found["label"].strip(" :-\t")
        remaining = None if found["remaining"] == "?" else _seconds(found["remaining"])
        if named := _EPOCH_LABEL.search(label) or _YOLO.match(label):
            epochs = named["epochs"]
            return Reading(
                epoch=int(named["epoch"]),
                epochs=int(epochs) if epochs else None,
                done=done,
                total=total,
                remaining=remaining,
            )
        if _TRAINING.match(label):
            label = ""
        return Reading(done=done, total=total, label=label[-40:], remaining=remaining)
    if found := _RICH.search(text):
        return Reading(
            epoch=int(found["epoch"]),
            epochs=int(found["last"]),
            last_epoch=True,
            done=float(found["done"]),
            total=float(found["total"]),
        )
    if found := _KERAS.search(text):
        return Reading(done=float(found["done"]), total=float(found["total"]))
    return None


def _read_loops(text: str) -> Reading | None:
    found = _LOOPS.search(text)
    if found is None:
        return None
    return Reading(epoch=int(found["epoch"]), done=float(found["done"]), total=float(found["total"]))


def _read_counters(text: str) -> Reading | None:
    epoch = step = None
    for found in _COUNTER.finditer(text):
        if _EVALUATION.search(text[max(0, found.start() - 30) : found.start()]):
            return None
        if found["epoch"]:
            epoch = epoch or found
        else:
            step = step or found
    if step is None and epoch is None and not _EVALUATION.match(text):
        step = _BRACKET.match(text)
    done = float(step["done"]) if step else None
    total = float(step["total"]) if step else None
    if epoch is None:
        if step is None and (percent := _PERCENT.search(text)):
            return Reading(done=float(percent["before"] or percent["after"]) / 100, total=1.0)
        return Reading(done=done, total=total) if step else None
    around = text[: epoch.start()], text[epoch.end() :]
    ended = step is None and not any(map(_BEGINS.search, around)) and _ENDS.search(around[1]) is not None
    return Reading(epoch=int(epoch["done"]), epochs=int(epoch["total"]), epoch_ended=ended, done=done, total=total)


def _is_plausible(reading: Reading) -> bool:
    if reading.total is not None and reading.done is not None and not 0 <= reading.done <= reading.total != 0:
        return False
    return (
        reading.epochs is None or reading.epoch is None or (reading.epoch <= reading.epochs != 0) or reading.last_epoch
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _seconds(text: str) -> float:
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part or 0)
    return float(total)


class LogProgress:
    """What the lines of a log have told so far, of one attempt of a training."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._epochs: int | None = None
        self._epochs_done = 0
        self._from_zero = self._names_last = False
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
        """What is counted, as it is printed: `epoch 3/10`, `epoch 3`, the name of a loop; empty for plain steps."""
        if self._label or self._epoch is None:
            return self._label
        # Steps after the end of an epoch are those of the next one.
        is_next = self._epoch_ended and self._done is not None and self._epochs_done != self._epochs
        number = self._epoch + is_next
        return f"epoch {number}/{self._epochs - self._names_last}" if self._epochs else f"epoch {number}"

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
        self._names_last = reading.last_epoch
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
