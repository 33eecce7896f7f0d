"""What programs say last, in the words of the libraries that they use: the cause of each, and one thing to do about it.

The words are those that the libraries document or print: glibc and Python, PyTorch with gloo and NCCL, CUDA, JAX, MPI,
XGBoost, libfabric, the kernel and container runtimes. An exception that is none of these is the program's own, whatever
it had printed before; it is quoted, and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.last_words import exceptions

_LAST: Final = 60
_SHARED_MEMORY: Final = (
    "give the pods more shared memory: a volume emptyDir with medium: Memory, mounted at /dev/shm; or load data with "
    "fewer workers"
)
_NEWER_DRIVER: Final = (
    "use an image whose CUDA is no newer than the driver of the node allows (nvidia-smi there prints it), or have the "
    "driver of the node updated"
)
_WRITABLE_HOME: Final = (
    "set HOME, and caches such as HF_HOME, to a directory that the user of the container may write: a volume emptyDir"
)
_INTERFACE: Final = (
    "set NCCL_SOCKET_IFNAME to an interface that the pods have (mostly eth0), or set it neither in the job "
    "nor in the image"
)
_LOCKED_MEMORY: Final = (
    "raise the limit of locked memory for containers on the nodes to unlimited (LimitMEMLOCK of the container runtime)"
)
_LISTENS: Final = (
    "see that the program connects to MASTER_ADDR and MASTER_PORT of its pod (PET_MASTER_ADDR and PET_MASTER_PORT "
    "without torchrun), and that rank 0 listens there; or, of another server, that it runs"
)

_MISSING_MODULE: Final = r"(?:(?:ModuleNotFoundError|ImportError): |python\S*: )No module named '?([\w.]+)"


class KnownWords(NamedTuple):
    """Words of libraries that have one cause."""

    pattern: str
    cause: Cause
    advice: str = ""
    """What to do, with groups of the pattern; empty where the cause tells more with the job at hand."""


_FAILED: Final = Cause.CONTAINER_FAILED

KNOWN: Final[Sequence[KnownWords]] = (
    # Memory of the container: the kernel, loaders of data of PyTorch, torchrun.
    KnownWords(
        r"oom[-_ ]?kill|out of memory: killed process|memory cgroup out of memory|killed by signal: killed"
        r"|\(SIGKILL\)|signal 9\b|exitcode\s*: -9\b",
        Cause.OUT_OF_MEMORY,
    ),
    # Shared memory: PyTorch, NCCL.
    KnownWords(
        r"killed by signal: bus error|unexpected bus error encountered in worker|workers are out of shared memory"
        r"|unable to (?:open|allocate|mmap).{0,40}shared memory|unable to write to file </torch_"
        r"|no space left on device.{0,40}/dev/shm|shared memory segment /dev/shm/nccl",
        _FAILED,
        _SHARED_MEMORY,
    ),
    # Memory of devices: PyTorch, cuBLAS, JAX.
    KnownWords(
        r"(?:CUDA|HIP|XPU) out of memory|torch\.(?:cuda\.)?OutOfMemoryError|RESOURCE_EXHAUSTED: Out of memory"
        r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|CUDA error: out of memory",
        _FAILED,
        "a GPU has too little memory: smaller batches, mixed precision, or a model that is spread over more GPUs",
    ),
    # Drivers: CUDA, NVML, PyTorch.
    KnownWords(
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|cudaErrorInsufficientDriver"
        r"|forward compatibility was attempted",
        _FAILED,
        _NEWER_DRIVER,
    ),
    KnownWords(
        r"Driver/library version mismatch",
        _FAILED,
        "restart the node, or load its driver anew: the driver was updated, and the kernel still has the one before",
    ),
    KnownWords(
        r"no kernel image is available for execution|is not compatible with the current PyTorch installation",
        _FAILED,
        "use a build of the library for this GPU: it has none for its compute capability",
    ),
    KnownWords(
        r"Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device is detected|cudaErrorNoDevice",
        _FAILED,
        "ask for GPUs: the pod sees none (nvidia.com/gpu in spec.trainer.resourcesPerNode, --gpus of trainmaster run)",
    ),
    KnownWords(r"Torch not compiled with CUDA enabled", _FAILED, "use an image with a build of PyTorch for CUDA"),
    # Networks: NCCL, libfabric with EFA, InfiniBand.
    KnownWords(
        r"no socket interface found|NCCL_SOCKET_IFNAME interface found|connecting to address.{0,40} is neither AF_INET",
        _FAILED,
        _INTERFACE,
    ),
    KnownWords(
        r"(?:ibv_reg_\w+|Unable to register (?:MR|memory)|RX packet pool|Couldn't enable endpoint)"
        r".{0,120}Cannot allocate memory",
        _FAILED,
        _LOCKED_MEMORY,
    ),
    KnownWords(
        r"NET/OFI.{0,80}(?:No eligible providers|Unable to find.{0,20}provider|Failed to initialize)",
        _FAILED,
        "ask for the device in each pod (vpc.amazonaws.com/efa), and let the security group pass all traffic within it",
    ),
    KnownWords(
        r"NET/IB.{0,120}(?:status=12\b|vendor err 129)|IBV_WC_RETRY_EXC_ERR|ibv_modify_qp failed",
        _FAILED,
        "a peer did not answer over InfiniBand: see its link and its node; NCCL_IB_HCA and NCCL_IB_GID_INDEX have to "
        "name what all nodes have",
    ),
    # Collective operations: PyTorch with NCCL and gloo, NCCL's RAS.
    KnownWords(
        r"watchdog caught collective operation timeout|watchdog got stuck for \d+|ncclTimeoutError"
        r"|Communicator ranks have different (?:collective operation counts|status)"
        r"|gloo.{0,200}timed out waiting \d+ms for (?:recv|send)",
        Cause.COLLECTIVE_TIMEOUT,
    ),
    # Names: glibc, Python, curl, Java, Go, c10d.
    KnownWords(
        r"getaddrinfo|gaierror|\bgai error\b|name or service not known|temporary failure in name resolution"
        r"|nodename nor servname|no address associated with hostname|could(?: not|n't) resolve host|NameResolutionError"
        r"|failed to resolve '|unknown host\b|UnknownHostException|dns resolution failed|lookup \S+: no such host"
        r"|addresses? of .{1,200} cannot be retrieved",
        Cause.NAME_RESOLUTION_FAILED,
    ),
    # Sizes: PyTorch, gloo, JAX.
    KnownWords(
        r"world[ _]?size\b.{0,80}(?:mismatch|differ|inconsistent|do(?:es)? not match|not equal|disagree|expected"
        r"|but got)|(?:mismatch|differ|inconsistent|expected).{0,60}world[ _]?size"
        r"|\brank\b.{0,40}(?:>=|(?:less|smaller|lower) than|out of (?:range|bounds)).{0,40}(?:world|num|size)"
        r"|invalid rank \d+, rank should be|duplicate rank\b|rank \d+ (?:is|was) (?:already|registered twice)"
        r"|process_id .{0,60}num_processes|num_(?:processes|nodes).{0,60}(?:mismatch|does not match|differ)"
        r"|enforce fail at .*rank_? < size",
        Cause.WORLD_SIZE_MISMATCH,
    ),
    # Programs, files and ports: Python, the C library, container runtimes.
    KnownWords(
        r"no command specified|has no command\b",
        _FAILED,
        "say what to run (trainer.command, or command in the container): args alone go to the entrypoint of the image, "
        "and no runtime starts torchrun by itself",
    ),
    KnownWords(
        _MISSING_MODULE,
        _FAILED,
        "correct the name {0}, or install the package that has it: in the image, or as the command begins (--pip of "
        "trainmaster run)",
    ),
    KnownWords(
        r"exec format error",
        _FAILED,
        "use an image for the processors of the node (its label kubernetes.io/arch); a script has to begin with #!",
    ),
    KnownWords(
        r"argument list too long",
        _FAILED,
        "pass the program as a file, by a ConfigMap or in the image: an argument may have 128 KiB at most",
    ),
    KnownWords(
        r"address already in use|EADDRINUSE",
        _FAILED,
        "another process of the pod, or with hostNetwork of the node, has the port: give one of them another",
    ),
    KnownWords(
        r"(?:Read-only file system|Permission denied): '(?:/root)?/\.|getpwuid\(\): uid not found"
        r"|trying to write in your cache folder|(?:/\.config/matplotlib|/\.cache/?\S*) is not a writable directory",
        _FAILED,
        _WRITABLE_HOME,
    ),
    KnownWords(
        r"Read-only file system: '?([^'\s]+)",
        _FAILED,
        "write elsewhere than to {0}, or mount a volume there: the file system of the container is read-only",
    ),
    KnownWords(
        r"No space left on device|ENOSPC|Disk quota exceeded",
        _FAILED,
        "make room on the volume to which it writes, or write less: fewer checkpoints, a larger claim",
    ),
    # Python and PyTorch, of a program that was started without torchrun.
    KnownWords(
        r"(?-i:KeyError: '|environment variable )"
        r"((?-i:RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT))(?:'| expected, but not set)",
        _FAILED,
        "start the program by torchrun, which sets {0} (command: [torchrun, SCRIPT]; trainmaster run -- torchrun "
        "SCRIPT); without it runtimes for torch set PET_NODE_RANK, PET_NNODES, PET_MASTER_ADDR and PET_MASTER_PORT",
    ),
    # JAX reads its place from nowhere but arguments.
    KnownWords(
        r"(?:Number of processes|The process id of the current process) must be defined"
        r"|coordinator_address should be defined",
        _FAILED,
        "give jax.distributed.initialize its three arguments, from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and "
        "JAX_PROCESS_ID, which the runtime jax-distributed sets in each pod",
    ),
    # Connections that nobody takes: c10d, gRPC, Python. Of gloo and NCCL it is a rank that is gone.
    KnownWords(
        r"^(?=.*connection ?refused).*(?:failed to connect to \[?|ipv[46]:|host='|Connect call failed \(')"
        r"([\w.:-]+)\]?(?::|', port=|', )(\d+)",
        _FAILED,
        f"{{0}}:{{1}} refused the connection: {_LISTENS}",
    ),
    KnownWords(
        r"ConnectionRefusedError|Errno (?:111|61)\b", _FAILED, f"which address refused is not known: {_LISTENS}"
    ),
    # Rendezvous: c10d, gloo, NCCL, JAX, MPI, XGBoost.
    KnownWords(
        r"rendezvous\w*.{0,80}(?:time|fail|clos|error)|Rendezvous(?:Timeout|Connection|Closed|State)Error"
        r"|waiting for clients|clients joined|client socket has (?:timed out|failed to connect)|wait timeout after \d+"
        r"|RuntimeError: Socket Timeout|DistStoreError|DistNetworkError.{0,80}time"
        r"|gloo.{0,200}(?:timed? ?out|connect failure|connectFullMesh failed)"
        r"|(?:jax|xla).{0,300}DEADLINE_EXCEEDED|coordination service.{0,120}(?:unavailable|timed|error)"
        r"|(?:orte|prte|orted).{0,120}lost|unable to reliably start one or more daemons"
        r"|ssh: connect to host .{1,200}: (?:connection|operation) (?:timed out|refused)"
        r"|(?:connect|bootstrap).{0,40}tracker.{0,80}(?:time|fail)|failed to (?:connect to|bootstrap).{0,60}tracker",
        Cause.RENDEZVOUS_TIMEOUT,
    ),
)
"""The first that fits counts."""

_PATTERNS: Final = tuple((re.compile(each.pattern, re.IGNORECASE), each) for each in KNOWN)
_NAMES: Final = next(pattern for pattern, each in _PATTERNS if each.cause is Cause.NAME_RESOLUTION_FAILED)

READ_FROM_WORDS: Final = frozenset(each.cause for each in KNOWN) - {_FAILED}
"""Causes that are only ever read from what a program says; OutOfMemory unless the kubelet says it."""

_HOST: Final = re.compile(
    r"(?:resolve(?: host(?:name)?)?|host(?:name)?|lookup|addresses of|host=)"
    r"[ :'\"(=]+([A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9])",
    re.IGNORECASE,
)
_JOINED: Final = re.compile(r"(\d+)/(\d+) clients joined")


class Said(NamedTuple):
    """Why a container failed by what it said."""

    cause: Cause
    line: str
    """What says so."""

    advice: str
    """One thing to do; empty where the cause tells more with the job at hand."""


def said_cause(lines: Sequence[str]) -> Said | None:
    """Return why a container failed if its last words are known; None if they are not."""
    for line in _telling(lines):
        for pattern, known in _PATTERNS:
            if (found := pattern.search(line)) is not None:
                return Said(known.cause, line, known.advice.format(*found.groups()))
    return None


def missing_module(lines: Sequence[str]) -> str:
    """Return which module a program misses; empty if none, or if it failed of something else."""
    said = said_cause(lines)
    found = re.search(_MISSING_MODULE, said.line) if said is not None else None
    return found[1] if found else ""


def unresolved_host(lines: Sequence[str]) -> str:
    """Return which name could not be resolved; empty if the lines do not say."""
    for line in _telling(lines):
        if _NAMES.search(line) and (found := _HOST.search(line)):
            return found[1]
    return ""


def clients_joined(lines: Sequence[str]) -> tuple[int, int] | None:
    """Return how many ranks were there, and how many were waited for, as PyTorch's store says it."""
    found = next((found for line in reversed(lines) if (found := _JOINED.search(line))), None)
    return None if found is None else (int(found[1]), int(found[2]))


def _telling(lines: Sequence[str]) -> Iterator[str]:
    """Yield what tells why, what tells most first: the last exception, or the last lines if there is none."""
    last = [line for line in lines[-_LAST:] if line.strip()]
    yield from exceptions("\n".join(last)) or reversed(last)
