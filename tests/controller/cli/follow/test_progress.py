"""How far a training is and how long it still needs, from the lines of its log: each, and in their order."""

from typing import Any

import pytest

from trainmaster.controller.cli.follow.progress import LogProgress, Pace, Reading, read_progress


def steps(done: float, total: float, remaining: float | None = None, **more: Any) -> Reading:
    return Reading(done=done, total=total, remaining=remaining, **more)


COUNTERS = {
    # tqdm, with and without a description, in ASCII, with sizes, drawn over itself
    " 45%|████▌     | 45/100 [00:12<00:15,  3.61it/s]": steps(45, 100, 15),
    "100%|##########| 938/938 [00:05<00:00, 160.10it/s]": steps(938, 938, 0),
    "  0%|          | 0/938 [00:00<?, ?it/s]": steps(0, 938),
    "  5%|5         | 50/1000 [00:10<1:03:10,  4.99it/s, loss=0.1]": steps(50, 1000, 3790),
    "Epoch 3/10:  45%|####5     | 45/100 [00:12<00:15,  3.61it/s]": steps(45, 100, 15, epoch=3, epochs=10),
    "Training:  10%|█         | 10/100 [00:01<00:09]": steps(10, 100, 9),
    "Downloading data:  27%|##7  | 12.3M/45.6M [00:01<00:03, 10.0MB/s]": steps(
        12.3e6, 45.6e6, 3, label="Downloading data"
    ),
    "Loading checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.0s/it]": steps(
        1, 2, 1, label="Loading checkpoint shards"
    ),
    "Map:   1%|  | 1000/120000 [00:00<00:30, 3900 examples/s]": steps(1e3, 1.2e5, 30, label="Map"),
    "  1%|▏ | 1/100 [00:00<00:09]\r  2%|▏ | 2/100 [00:00<00:08]\r  3%|▎ | 3/100 [00:00<00:07]": steps(3, 100, 7),
    "  3%|▎ | 3/100 [00:00<00:07]\r": steps(3, 100, 7),
    "mnist |  45%|████▌     | 45/100 [00:12<00:15,  3.61it/s]": steps(45, 100, 15),
    "mnist | [12/100] loss 0.3": steps(12, 100),
    "mnist rank 0 | [12/100] loss 0.3": steps(12, 100),
    "node 0 (ranks 0-3) | [12/100] loss 0.3": steps(12, 100),
    "rank 0 |  45/100 [============>.................] - ETA: 3s": steps(45, 100),
    "[default0]:[12/100] loss 0.3": steps(12, 100),
    # Lightning: tqdm, and rich, which tells the number of the last epoch
    "Epoch 0:  45%|████▌     | 45/100 [00:12<00:15,  3.61it/s, v_num=0]": steps(45, 100, 15, epoch=0),
    "Epoch 3/9  ━━━━━━━━╸━━━━━━━━━━━ 45/100 0:00:12 • 0:00:15 3.61it/s v_num: 0": steps(
        45, 100, epoch=3, epochs=9, last_epoch=True
    ),
    # Keras 2 and 3, and without a bar
    " 45/100 [============>.................] - ETA: 3s - loss: 0.3": steps(45, 100),
    "\x1b[1m 45/100\x1b[0m \x1b[32m━━━━━━━\x1b[0m\x1b[37m━━━━━\x1b[0m \x1b[1m3s\x1b[0m 30ms/step - loss: 0.3": steps(
        45, 100
    ),
    "100/100 - 3s - 30ms/step - accuracy: 0.9 - loss: 0.3": steps(100, 100),
    "Epoch 3/10": Reading(epoch=3, epochs=10),
    # examples of PyTorch: MNIST, ImageNet; timm, mmengine, fairseq, Megatron, YOLO
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3": steps(640, 60000, epoch=1),
    "Epoch: [3][  10/5005]\tTime  0.5 ( 0.6)\tLoss 6.9e+00": steps(10, 5005, epoch=3),
    "Train: 0 [  50/1251 (  4%)]  Loss: 6.94 (6.95)  Time: 0.4s": steps(50, 1251, epoch=0),
    "2024/01/15 10:30:22 - mmengine - INFO - Epoch(train) [1][ 50/100]  lr: 1.0e-02  eta: 0:01:00": steps(
        50, 100, epoch=1
    ),
    "epoch 003:   5%|5   | 10/200 [00:01<00:19, loss=5.1]": steps(10, 200, 19, epoch=3),
    " iteration      100/  500000 | consumed samples:        25600 | lm loss: 7.1": steps(100, 500000),
    "      1/100     2.1G   0.05   0.04   128   640:  45%|████▌     | 45/100 [00:12<00:15]": steps(
        45, 100, 15, epoch=1, epochs=100
    ),
    # what people print
    "epoch 3/10": Reading(epoch=3, epochs=10),
    "=== Epoch 3/10 ===": Reading(epoch=3, epochs=10),
    "Starting epoch 3 of 10 with lr 0.1": Reading(epoch=3, epochs=10),
    "epoch 3/10 loss 0.31": Reading(epoch=3, epochs=10, epoch_ended=True),
    "Epoch 3/10 finished": Reading(epoch=3, epochs=10, epoch_ended=True),
    "epoch: 3 / 10, loss=0.2": Reading(epoch=3, epochs=10, epoch_ended=True),
    "Epoch [3/10], Step [100/600], Loss: 0.1": steps(100, 600, epoch=3, epochs=10),
    "step 120/1000": steps(120, 1000),
    "[rank 0] Step: 120/1000 loss 2.3 (0.5 s/step)": steps(120, 1000),
    "global step 120/1000.": steps(120, 1000),
    "2024-01-15 10:30:22,123 INFO train.py:12 iter 120/1000 loss 0.3": steps(120, 1000),
    "batch 10 of 100": steps(10, 100),
    "[12/100] loss 0.3": steps(12, 100),
    "2024-01-15 10:30:22 INFO [12/100] loss 0.3": steps(12, 100),
    "Training [12/100]": steps(12, 100),
    "Progress: 45.5%": steps(0.455, 1),
    "45% done": steps(0.45, 1),
}

NO_COUNTERS = [
    "2024/01/15 10:30:22 loading",
    "01/15 10:30:22 loading",
    "[01/15/2024] loading",
    "[2024/01/15 10:30:22] loading",
    "loss 1/2",
    "loss: 0.5 (1/2 of the first)",
    "accuracy 45%",
    "accuracy: 97/100",
    "test 45/100 correct (45%)",
    "Test set: Average loss: 0.0263, Accuracy: 9913/10000 (99%)",
    "saving to /data/3/10/model.pt",
    "saved runs/epoch 3/10/model.pt",
    "saved /out/step 3/10.pt",
    "checkpoints/epoch-3/10",
    "reading /data/train [3/10]",
    "epoch 3/10.5",
    "epoch 12/3",
    "step 5/0",
    "epoch 3",
    "worker 1/4 is ready",
    "rank 0/4",
    "node 1/2 joined",
    "GPU 0/8: 45% used",
    "memory 45%",
    "45%",
    "http://example.org/step/3/10",
    "lr 1/3",
    "[1/2",
    "score [3/10]",
    "answer [3/10] was wrong",
    "Evaluating step 3/10",
    "val epoch 3/10 loss 0.3",
    "Test: [ 10/100]  Acc@1 45.0",
    "1/2",
    "30/100 people",
    "CUDA 12.4/cuDNN 9",
    "  ━━━━━━━━━━━━━━━━━━━━━━━━ 12.3/45.6 MB 10.1 MB/s eta 0:00:03",
    "45it [00:12, 3.61it/s]",
    "{'loss': 0.5, 'learning_rate': 4.7e-05, 'epoch': 0.3}",
    "[12]\ttrain-rmse:0.5",
    "%|/[<",
    "1.2.3%|x| 1.2.3/4..5 [00:00<00:00]",
]


def test_counters_are_read_and_what_only_looks_like_one_is_not() -> None:
    assert {line: read_progress(line) for line in COUNTERS} == COUNTERS
    assert {line: read_progress(line) for line in NO_COUNTERS} == dict.fromkeys(NO_COUNTERS)


def test_a_line_of_any_length_and_content_is_read_quickly() -> None:
    """The expressions look at a bounded part of a line."""
    for piece in ("1/", "[", "epoch ", "%|", "12/100 ", "\x1b[", " " * 50, "9" * 40, "train: "):
        assert read_progress(piece * 100_000 + "/%") is None


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
    told_of = [f"epoch {first + 1}/3", f"epoch {first + 2}/3"]
    lines = [bar(10, 10), f"epoch {first}/3 loss 0.9"]
    for each in (1, 2):
        assert told(*lines).what == f"epoch {first + each - 1}/3"
        lines += [bar(0, 10), bar(5, 10)]
        progress = told(*lines)
        assert (progress.what, progress.steps) == (told_of[each - 1], "5/10")
        assert progress.fraction == pytest.approx((each + 0.5) / 3)
        lines += [bar(10, 10), f"epoch {first + each}/3 loss 0.8"]
    assert told(*lines).what == told_of[-1]
    assert told(*lines, bar(5, 10)).what == told_of[-1], "there is no fourth: an evaluation"


def test_epochs_may_count_from_zero() -> None:
    """They are called as the log calls them."""
    assert told(bar(5, 10, "epoch 0: ")).what == "epoch 0"
    progress = told("epoch 0/10 loss 0.9", "epoch 1/10 loss 0.8")
    assert progress.fraction == pytest.approx(0.2)
    assert progress.what == "epoch 1/10"
    progress = told("Epoch 3/9  ━━━━━━━━╸━━━━━━━━━━━ 50/100 0:00:12 • 0:00:15 3.61it/s")
    assert progress.fraction == pytest.approx(0.35)
    assert progress.what == "epoch 3/9"


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
