"""How far a training is and how long it still needs, from the lines of its log in their order."""

from __future__ import annotations

import pytest

from trainmaster.controller.cli.follow.display.progress import LogProgress, Pace


def told(*lines: str) -> LogProgress:
    progress = LogProgress()
    for line in lines:
        progress.feed(line)
    return progress


def bar(done: int, total: int, label: str = "", left: str = "00:15") -> str:
    return f"{label}{done * 100 // total:3}%|###   | {done}/{total} [00:12<{left},  3.61it/s]"


def test_plain_steps_are_the_whole_training_unless_they_start_again() -> None:
    progress = told("loading", "epoch 3")
    assert (progress.fraction, progress.what, progress.steps, progress.remaining) == (None, "", "", None)
    progress = told(bar(25, 100))
    assert (progress.fraction, progress.what, progress.steps, progress.is_whole) == (0.25, "", "25/100", True)
    assert progress.remaining == 15
    assert not told(bar(100, 100), bar(1, 100)).is_whole


def test_an_epoch_that_begins_is_not_done_yet_and_one_with_results_is() -> None:
    # An epoch that begins is not done yet and steps are parts of it. Keras: a line for the epoch, then bars.
    assert told("Epoch 3/10").fraction == pytest.approx(0.2)
    progress = told("Epoch 3/10", " 50/100 [=====>......] - ETA: 3s")
    assert progress.fraction == pytest.approx(0.25)
    assert (progress.what, progress.steps, progress.is_whole) == ("epoch 3/10", "50/100", True)
    assert progress.remaining is None, "what the bar says is the end of the epoch"
    # A line with results ends its epoch.
    assert told("epoch 3/10 loss 0.3").fraction == pytest.approx(0.3)
    assert told("epoch 3/10 loss 0.3", bar(50, 100)).fraction == pytest.approx(0.35), "the fourth has begun"
    assert told("epoch 10/10 loss 0.3").fraction == 1
    # An epoch never leads back.
    progress = told("Epoch 3/10", bar(100, 100), bar(1, 20))
    assert progress.fraction == pytest.approx(0.3)
    assert told("Epoch 3/10", bar(100, 100), "Epoch 4/10", bar(50, 100)).fraction == pytest.approx(0.35)
    # Of an epoch among unknown many its own progress is known.
    progress = told(bar(45, 100, "Epoch 1: "))
    assert (progress.fraction, progress.what, progress.is_whole) == (0.45, "epoch 1", False)
    assert progress.remaining is None


@pytest.mark.parametrize("first", [0, 1])
def test_steps_after_the_end_of_an_epoch_are_told_of_the_next_one(first: int) -> None:
    """Its bar has no name, and the line with its results comes behind the bar."""
    told_of = ["epoch 2/3", "epoch 3/3"]
    lines = [bar(10, 10), f"epoch {first}/3 loss 0.9"]
    for each in (1, 2):
        assert told(*lines).what == f"epoch {each}/3"
        lines += [bar(0, 10), bar(5, 10)]
        progress = told(*lines)
        assert (progress.what, progress.steps) == (told_of[each - 1], "5/10")
        assert progress.fraction == pytest.approx((each + 0.5) / 3)
        lines += [bar(10, 10), f"epoch {first + each}/3 loss 0.8"]
    assert told(*lines).what == "epoch 3/3"
    assert told(*lines, bar(5, 10)).what == "epoch 3/3", "there is no fourth: an evaluation"


def test_epochs_may_count_from_zero() -> None:
    progress = told("epoch 0/10 loss 0.9", "epoch 1/10 loss 0.8")
    assert progress.fraction == pytest.approx(0.2)
    assert progress.what == "epoch 2/10"
    progress = told("Epoch 3/9  ━━━━━━━━╸━━━━━━━━━━━ 50/100 0:00:12 • 0:00:15 3.61it/s")
    assert progress.fraction == pytest.approx(0.35)
    assert progress.what == "epoch 4/10"


def test_an_evaluation_changes_nothing_and_a_bar_that_was_taken_away_is_forgotten() -> None:
    # An evaluation within the steps changes nothing. The trainer of Hugging Face draws a bar without a name for it,
    # of another length.
    progress = told(bar(500, 1000), bar(0, 20), bar(10, 20), bar(20, 20))
    assert (progress.steps, progress.is_whole) == ("500/1000", True)
    assert told(bar(500, 1000), bar(10, 20), bar(501, 1000)).is_whole
    # A bar that was taken away is forgotten in the end.
    progress = told(bar(1, 2), *[bar(number, 5000) for number in range(1200)])
    assert (progress.steps, progress.is_whole) == ("1199/5000", False)


def test_what_precedes_the_training_is_shown_until_it_begins() -> None:
    progress = told(bar(1, 4, "Downloading: "))
    assert (progress.fraction, progress.what, progress.is_whole) == (0.25, "Downloading", False)
    progress = told(bar(1, 4, "Downloading: "), bar(10, 100), bar(3, 4, "Evaluating: "))
    assert (progress.what, progress.steps, progress.is_whole) == ("", "10/100", True)
    # Percents and sizes are no steps.
    assert told("Downloading:  27%|##7  | 1.3G/4.6G [00:01<00:03, 10.0MB/s]").steps == ""
    assert told("Progress: 45%").steps == ""


def test_time_that_is_left_follows_from_the_pace() -> None:
    pace = Pace()
    assert pace.remaining(0) is None
    pace.observe(0.0, 100)
    pace.observe(0.01, 101)
    assert pace.remaining(101) is None, "too early to tell"
    pace.observe(0.1, 110)
    assert pace.remaining(110) == pytest.approx(90)
    assert pace.remaining(130) == pytest.approx(70)
    assert pace.remaining(1000) == 0
    # A training that starts again has a new pace.
    pace = Pace()
    pace.observe(0.1, 0)
    pace.observe(0.5, 40)
    pace.observe(0.0, 50)
    assert pace.remaining(50) is None


def test_the_pace_depends_neither_on_what_was_written_before_nor_on_how_often_one_looks() -> None:
    # A log that was written before tells nothing of the pace.
    pace = Pace()
    for percent in range(50):
        pace.observe(percent / 100, 100 + percent / 1000)
    assert pace.remaining(100.1) is None
    pace.observe(0.59, 110.049)
    assert pace.remaining(110.049) == pytest.approx(41)
    # The pace does not depend on how often one looks.
    pace = Pace()
    for tenth in range(300):
        pace.observe(tenth // 10 / 100, 100 + tenth / 10)
    assert pace.remaining(130) == pytest.approx(70, abs=1)
