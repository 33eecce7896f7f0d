"""Last words that are known, as libraries print them: each has a cause and, where that does not say it, what to do."""

import re

import pytest
from support.pod_views import ended, pod, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.containers import failed_containers
from trainmaster.controller.explain.causes.failures.last_said import KNOWN, said_cause
from trainmaster.controller.explain.findings import Certainty, Finding

MEMORY, FAILED, NAMES = Cause.OUT_OF_MEMORY, Cause.CONTAINER_FAILED, Cause.NAME_RESOLUTION_FAILED
RENDEZVOUS, COLLECTIVE, SIZES = Cause.RENDEZVOUS_TIMEOUT, Cause.COLLECTIVE_TIMEOUT, Cause.WORLD_SIZE_MISMATCH
NCCL = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1"
C10D = "DistNetworkError: The client socket has failed to connect"

WORDS: tuple[tuple[str, Cause, str], ...] = (
    ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.", MEMORY, "limit"),
    ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n  exitcode  : -9 (pid: 42)", MEMORY, "limit"),
    ("RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error.", FAILED, "/dev/shm"),
    ("RuntimeError: unable to write to file </torch_31_7>: No space left on device (28)", FAILED, "/dev/shm"),
    (f"{NCCL}, unhandled system error\nLast error:\nError while creating shared memory segment /dev/shm/nccl",
     FAILED, "/dev/shm"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", FAILED, "a GPU has too little memory"),
    ("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes", FAILED, "a GPU has"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found 11040).", FAILED, "the driver of the node"),
    ("Failed to initialize NVML: Driver/library version mismatch", FAILED, "restart the node"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", FAILED, "for this GPU"),
    ("RuntimeError: Found no NVIDIA driver on your system.", FAILED, "ask for GPUs"),
    ("AssertionError: Torch not compiled with CUDA enabled", FAILED, "a build of PyTorch for CUDA"),
    (f"{NCCL}, internal error\nLast error:\nBootstrap : no socket interface found",
     FAILED, "NCCL_SOCKET_IFNAME"),
    ("NCCL WARN NET/IB : ibv_reg_mr_iova2 failed with error Cannot allocate memory", FAILED, "locked memory"),
    ("libfabric:7:1:efa:mr:efa_mr_regattr():632<warn> Unable to register MR: Cannot allocate memory", FAILED, "locked"),
    ("NCCL WARN NET/OFI No eligible providers were found", FAILED, "vpc.amazonaws.com/efa"),
    ("NET/IB: Got completion from peer 10.0.0.4 with status=12 opcode=0 len=0 vendor err 129", FAILED, "its link"),
    ("[rank1]:[E218 04:54:22 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: Work",
     COLLECTIVE, "did not take part"),
    ("RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation",
     COLLECTIVE, "did not take part"),
    ("  Communicator ranks have different collective operation counts", COLLECTIVE, "did not take part"),
    ("socket.gaierror: [Errno -2] Name or service not known", NAMES, "DNS"),
    ("socket.gaierror: [Errno -3] Temporary failure in name resolution", NAMES, "DNS"),
    ("DistNetworkError: The IPv4 network addresses of (t-node-0-0.t, 29500) cannot be retrieved (gai error: -2)",
     NAMES, "t-node-0-0.t is the name of a rank"),
    ("ssh: Could not resolve hostname t-node-0-1.t: Name or service not known", NAMES, "t-node-0-1.t"),
    ("RuntimeError: rank 4 >= world_size 4, check the launcher", SIZES, "nothing but the runtime"),
    ("ValueError: world size mismatch: this rank has 4, the store has 8", SIZES, "nothing but the runtime"),
    ("ModuleNotFoundError: No module named 'datasets.arrow'", FAILED, "correct the name datasets.arrow"),
    ("/usr/bin/python: No module named trian", FAILED, "correct the name trian, or install"),
    ("failed to create containerd task: no command specified", FAILED, "say what to run (trainer.command"),
    ("exec /usr/bin/python3: exec format error", FAILED, "kubernetes.io/arch"),
    ("exec /usr/bin/python3: argument list too long", FAILED, "128 KiB"),
    ("OSError: [Errno 98] Address already in use", FAILED, "has the port"),
    ("PermissionError: [Errno 13] Permission denied: '/.cache'", FAILED, "set HOME"),
    ("OSError: [Errno 30] Read-only file system: '/root/.cache/huggingface'", FAILED, "set HOME"),
    ("KeyError: 'getpwuid(): uid not found: 1000'", FAILED, "set HOME"),
    ("OSError: [Errno 30] Read-only file system: '/out/model.pt'", FAILED, "elsewhere than to /out/model.pt"),
    ("OSError: [Errno 28] No space left on device: '/ckpt/step100.pt'", FAILED, "make room on the volume"),
    ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError: timed out after 900 seconds", RENDEZVOUS, "see"),
    ("torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 3/4 clients joined.",
     RENDEZVOUS, "3 of 4 ranks were there"),
    ("DistNetworkError: The client socket has timed out after 300000ms while trying to connect to (a, 29500).",
     RENDEZVOUS, "see whether all pods ran"),
    ("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks",
     RENDEZVOUS, "see whether all pods ran"),
    ("F1123 12:58:54.572 19 client.h:80] the JAX service detected fatal errors: DEADLINE_EXCEEDED\n@ 0x7f",
     RENDEZVOUS, "see whether all pods ran"),
    ("ValueError: Number of processes must be defined.", FAILED, "JAX_NUM_PROCESSES"),
    *((f"KeyError: '{name}'", FAILED, f"by torchrun, which sets {name}")
      for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")),
    ("ValueError: Error initializing: environment variable RANK expected, but not set", FAILED, "by torchrun"),
    ("ORTE was unable to reliably start one or more daemons.", RENDEZVOUS, "see whether all pods ran"),
    (f"{C10D} to any network address of (t, 29501). {C10D} to 10.0.0.4:29501 (errno: 111 - Connection refused).",
     FAILED, "10.0.0.4:29501 refused the connection"),
    (f"{C10D} to [h]:29501 (errno: 111 - Connection refused).", FAILED, "h:29501 refused the connection"),
    ("ConnectionError: HTTPConnectionPool(host='mlflow', port=5000): ([Errno 111] Connection refused)",
     FAILED, "mlflow:5000 refused the connection"),
    ("ConnectionRefusedError: [Errno 111] Connect call failed ('10.0.0.4', 29501)",
     FAILED, "10.0.0.4:29501 refused the connection"),
    ("ConnectionRefusedError: [Errno 111] Connection refused", FAILED, "which address refused is not known"),
)  # fmt: skip

UNKNOWN = (
    "KeyError: 'rank'",
    "KeyError: 'MY_RANK'",
    'botocore.exceptions.ConnectTimeoutError: Connect timeout on endpoint URL: "https://s3.example.com"',
    "grpc.RpcError: StatusCode.DEADLINE_EXCEEDED: the bucket does not answer",
    "java.lang.OutOfMemoryError: Java heap space",
    "mpirun was unable to launch the specified application as it could not access an executable",
    "ValueError: invalid rank 3 of a tensor",
    "ValueError: batch size must divide 128",
    "AssertionError",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
    f"{NCCL}, unhandled cuda error",
    "RuntimeError: DataLoader worker (pid(s) 1234) exited unexpectedly",
)


def only(words: str) -> Finding:
    message = words
    if re.match(r"[\w.]+:|AssertionError", words):
        message = f'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n{words}\n'
    (finding,) = failed_containers(view(pod(0, phase="Failed", **ended(1, message=message))))
    return finding


@pytest.mark.parametrize(("words", "cause", "advice"), WORDS, ids=[words[:40] for words, _, _ in WORDS])
def test_words_that_are_known_have_a_cause_and_one_thing_to_do(words: str, cause: Cause, advice: str) -> None:
    finding = only(words)
    assert finding.cause is cause
    assert advice in finding.what_next[0] + finding.what_next[-1]
    assert finding.certainty is (Certainty.CERTAIN if cause is FAILED else Certainty.LIKELY)
    assert finding.evidence[1].text.startswith("it said last: ")


def test_every_entry_of_the_table_has_words_that_it_is_the_first_to_fit() -> None:
    fitting = {
        next(index for index, known in enumerate(KNOWN) if re.search(known.pattern, text, re.IGNORECASE))
        for text in (" | ".join(words.splitlines()) for words, _, _ in WORDS)
    }
    assert fitting == set(range(len(KNOWN)))


@pytest.mark.parametrize("words", UNKNOWN)
def test_words_that_are_not_known_are_quoted_without_a_guess(words: str) -> None:
    finding = only(words)
    assert (finding.cause, finding.what_next) == (FAILED, ["read its log: trainmaster logs t -n ns"])
    assert finding.evidence[1].text == f"it said last: {words}"


def test_of_several_processes_the_first_that_raised_something_counts_with_all_that_it_raised() -> None:
    first = ["[rank1]: socket.gaierror: [Errno -2] Name or service not known", "[rank1]: ConnectionError: no bucket"]
    other = ["[rank0]: torch.distributed.DistStoreError: wait timeout after 300000ms"]
    said = said_cause([*first, *other])
    assert said is not None
    assert said.cause is NAMES
    assert said_cause(["[rank1]: ValueError: my loss is NaN", *other]) is None
