"""Lines as the usual libraries print them, and lines that only look so."""

from __future__ import annotations

from trainmaster.controller.cli.follow.display.progress_lines import Reading, read_progress

COUNTERS = {
    # tqdm, with and without a description, in ASCII, with sizes, drawn over itself
    " 45%|████▌     | 45/100 [00:12<00:15,  3.61it/s]": Reading(done=45, total=100, remaining=15),
    "100%|##########| 938/938 [00:05<00:00, 160.10it/s]": Reading(done=938, total=938, remaining=0),
    "  0%|          | 0/938 [00:00<?, ?it/s]": Reading(done=0, total=938),
    "  5%|5         | 50/1000 [00:10<1:03:10,  4.99it/s, loss=0.1]": Reading(done=50, total=1000, remaining=3790),
    "Epoch 3/10:  45%|####5     | 45/100 [00:12<00:15,  3.61it/s]": Reading(
        epoch=3, epochs=10, done=45, total=100, remaining=15
    ),
    "Training:  10%|█         | 10/100 [00:01<00:09]": Reading(done=10, total=100, remaining=9),
    "Downloading data:  27%|##7  | 12.3M/45.6M [00:01<00:03, 10.0MB/s]": Reading(
        done=12.3e6, total=45.6e6, label="Downloading data", remaining=3
    ),
    "Loading checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.0s/it]": Reading(
        done=1, total=2, label="Loading checkpoint shards", remaining=1
    ),
    "Map:   1%|  | 1000/120000 [00:00<00:30, 3900 examples/s]": Reading(
        done=1e3, total=1.2e5, label="Map", remaining=30
    ),
    "  1%|▏ | 1/100 [00:00<00:09]\r  2%|▏ | 2/100 [00:00<00:08]\r  3%|▎ | 3/100 [00:00<00:07]": Reading(
        done=3, total=100, remaining=7
    ),
    "  3%|▎ | 3/100 [00:00<00:07]\r": Reading(done=3, total=100, remaining=7),
    "mnist |  45%|████▌     | 45/100 [00:12<00:15,  3.61it/s]": Reading(done=45, total=100, remaining=15),
    "mnist | [12/100] loss 0.3": Reading(done=12, total=100),
    "mnist rank 0 | [12/100] loss 0.3": Reading(done=12, total=100),
    "rank 0 |  45/100 [============>.................] - ETA: 3s": Reading(done=45, total=100),
    "[default0]:[12/100] loss 0.3": Reading(done=12, total=100),
    # Lightning: tqdm, and rich, which tells the number of the last epoch
    "Epoch 0:  45%|████▌     | 45/100 [00:12<00:15,  3.61it/s, v_num=0]": Reading(
        epoch=0, done=45, total=100, remaining=15
    ),
    "Epoch 3/9  ━━━━━━━━╸━━━━━━━━━━━ 45/100 0:00:12 • 0:00:15 3.61it/s v_num: 0": Reading(
        epoch=3, epochs=9, last_epoch=True, done=45, total=100
    ),
    # Keras 2 and 3, and without a bar
    " 45/100 [============>.................] - ETA: 3s - loss: 0.3": Reading(done=45, total=100),
    "\x1b[1m 45/100\x1b[0m \x1b[32m━━━━━━━\x1b[0m\x1b[37m━━━━━\x1b[0m \x1b[1m3s\x1b[0m 30ms/step - loss: 0.3": Reading(
        done=45, total=100
    ),
    "100/100 - 3s - 30ms/step - accuracy: 0.9 - loss: 0.3": Reading(done=100, total=100),
    "Epoch 3/10": Reading(epoch=3, epochs=10),
    # examples of PyTorch: MNIST, ImageNet; timm, mmengine, fairseq, Megatron, YOLO
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3": Reading(epoch=1, done=640, total=60000),
    "Epoch: [3][  10/5005]\tTime  0.5 ( 0.6)\tLoss 6.9e+00": Reading(epoch=3, done=10, total=5005),
    "Train: 0 [  50/1251 (  4%)]  Loss: 6.94 (6.95)  Time: 0.4s": Reading(epoch=0, done=50, total=1251),
    "2024/01/15 10:30:22 - mmengine - INFO - Epoch(train) [1][ 50/100]  lr: 1.0e-02  eta: 0:01:00": Reading(
        epoch=1, done=50, total=100
    ),
    "epoch 003:   5%|5   | 10/200 [00:01<00:19, loss=5.1]": Reading(epoch=3, done=10, total=200, remaining=19),
    " iteration      100/  500000 | consumed samples:        25600 | lm loss: 7.1": Reading(done=100, total=500000),
    "      1/100     2.1G   0.05   0.04   128   640:  45%|████▌     | 45/100 [00:12<00:15]": Reading(
        epoch=1, epochs=100, done=45, total=100, remaining=15
    ),
    # what people print
    "epoch 3/10": Reading(epoch=3, epochs=10),
    "=== Epoch 3/10 ===": Reading(epoch=3, epochs=10),
    "Starting epoch 3 of 10 with lr 0.1": Reading(epoch=3, epochs=10),
    "epoch 3/10 loss 0.31": Reading(epoch=3, epochs=10, epoch_ended=True),
    "Epoch 3/10 finished": Reading(epoch=3, epochs=10, epoch_ended=True),
    "epoch: 3 / 10, loss=0.2": Reading(epoch=3, epochs=10, epoch_ended=True),
    "Epoch [3/10], Step [100/600], Loss: 0.1": Reading(epoch=3, epochs=10, done=100, total=600),
    "step 120/1000": Reading(done=120, total=1000),
    "[rank 0] Step: 120/1000 loss 2.3 (0.5 s/step)": Reading(done=120, total=1000),
    "global step 120/1000.": Reading(done=120, total=1000),
    "2024-01-15 10:30:22,123 INFO train.py:12 iter 120/1000 loss 0.3": Reading(done=120, total=1000),
    "batch 10 of 100": Reading(done=10, total=100),
    "[12/100] loss 0.3": Reading(done=12, total=100),
    "2024-01-15 10:30:22 INFO [12/100] loss 0.3": Reading(done=12, total=100),
    "Training [12/100]": Reading(done=12, total=100),
    "Progress: 45.5%": Reading(done=0.455, total=1),
    "45% done": Reading(done=0.45, total=1),
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
