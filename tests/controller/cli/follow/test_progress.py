"""How far a training is and how long it still needs, from the lines of its log."""

import pytest

from trainmaster.controller.cli.follow.progress import LogProgress


def fed(*lines: str) -> LogProgress:
    """What lines have told that came a minute after each other."""
    progress = LogProgress()
    for minute, line in enumerate(lines):
        progress.feed(line, minute * 60)
    return progress


@pytest.mark.parametrize(
    ("line", "what", "fraction"),
    [
        # tqdm, Keras, examples of PyTorch, and what people print
        (" 45%|████▌     | 45/100 [00:12<00:15,  3.61it/s]", "45/100", 0.45),
        ("  1%|1 | 1/100 [00:00<00:09]\r  3%|3 | 3/100 [00:00<00:07]\r", "3/100", 0.03),
        ("Epoch 3/10:  45%|####5     | 45/100 [00:12<00:15,  3.61it/s]", "epoch 3/10  45/100", 0.245),
        ("mnist rank 0 |  45/100 [============>.................] - ETA: 3s", "45/100", 0.45),
        ("\x1b[1m 45/100\x1b[0m \x1b[32m━━━━━━━\x1b[0m \x1b[1m3s\x1b[0m 30ms/step - loss: 0.3", "45/100", 0.45),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3", "epoch 1  640/60000", None),
        ("[rank0]: epoch 3 of 10, step 50 of 100", "epoch 3/10  50/100", 0.25),
        ("step=5/10 loss=0.3", "5/10", 0.5),
        ("iteration 100/ 500 | consumed samples: 25600", "100/500", 0.2),
        ("epoch 0/10", "epoch 0/10", 0.0),
        # What is none of the training
        ("Downloading data:  27%|##7  | 12/45 [00:01<00:03, 10.0MB/s]", "", None),
        ("Loading checkpoint shards:  50%|#####     | 1/2 [00:01<00:01]", "", None),
        ("validation step 5/10", "", None),
        ("2024/01/15 10:30:22 reading /data/batch/1/2 of 3", "", None),
        ("step 5/10.5 of step-1/2", "", None),
        ("epochs trained for: many", "", None),
        ("step 5/0", "", None),
    ],
)
def test_counters_are_read_and_what_only_looks_like_one_is_not(line: str, what: str, fraction: float | None) -> None:
    progress = fed(line)
    assert (progress.what, progress.fraction) == (what, pytest.approx(fraction) if fraction is not None else None)


def test_an_epoch_that_begins_is_not_done_yet_and_one_with_results_is() -> None:
    lines = ("Epoch 1/4", "step 5/10", "epoch 1/4 loss 0.3", "Epoch 2/4", "step 5/10")
    assert [fed(*lines[: count + 1]).fraction for count in range(5)] == [0, 0.125, 0.25, 0.25, 0.375]
    assert fed("epoch 0/4 loss 0.3", "epoch 3/4 loss 0.1").fraction == 1


def test_steps_that_begin_again_are_not_the_whole_training() -> None:
    assert fed("step 9/10", "step 1/10").fraction is None
    assert fed("step 9/10", "step 1/100").fraction == 0.01


def test_time_that_is_left_follows_from_the_pace() -> None:
    progress = LogProgress()
    assert progress.remaining(0) is None
    # What was written before comes at once, and tells no pace.
    for step in range(40):
        progress.feed(f"step {step}/100", 10)
    progress.feed("step 41/100", 12)
    assert progress.remaining(12) is None
    progress.feed("step 59/100", 30)
    assert progress.remaining(30) == pytest.approx(41)
    assert progress.remaining(40) == pytest.approx(31)
    assert progress.remaining(1000) == 0
