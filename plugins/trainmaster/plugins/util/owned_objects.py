"""Owned objects: the ConfigMaps and Secrets that the pods of a workload mount, and the keys in those Secrets.

- A Secret is made once, from fresh randomness, and is immutable: a key that changed under running pods would part them.
  Nobody reads it back, or has a right to list Secrets: what is not known to exist is created, unless it is there.
- A ConfigMap follows the TrainJob like the JobSet does: once the workload runs, what its pods were started with stays,
  since a pod that starts again has to find the same as the others.
- Randomness comes in as an argument, so that whoever builds the same twice (a test) can have the same twice.
"""

from __future__ import annotations

from base64 import b64encode, b85encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework.interface import ApplyWhen, Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch

WATCHES: Iterable[Watch] = (
    Watch("v1", "ConfigMap", "configmaps", writes=True),
    Watch("v1", "Secret", "secrets", writes=True, creates_only=True, reads=False),
)
"""The kinds that are built here; a change enqueues the TrainJob that owns the object."""


def config_map(name: str, data: Mapping[str, str], job: TrainJob, listers: Listers) -> Desired:
    """Build a ConfigMap that is brought up to date until the workload runs."""
    obj: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}
    return Desired(obj, ApplyWhen.MISSING if workload_runs(job, listers) else ApplyWhen.ALWAYS)


def secret(
    name: str, make: Callable[[], Mapping[str, bytes]], job: TrainJob, listers: Listers, *, secret_type: str
) -> Desired:
    """Build a Secret that is never changed; its data is made only if it does not exist yet."""
    return Desired(secret_object(name, make, job.metadata.namespace, listers, secret_type=secret_type), ApplyWhen.ONCE)


def secret_object(
    name: str, make: Callable[[], Mapping[str, bytes]], namespace: str, listers: Listers, *, secret_type: str
) -> JsonObject:
    """Build a Secret for a job of any kind; its data is made if it does not exist yet."""
    obj: JsonObject = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": secret_type,
        "immutable": True,
    }
    if listers.get("v1", "Secret", namespace, name) is None:
        obj["data"] = {key: b64encode(value).decode() for key, value in make().items()}
    return obj


def workload_runs(job: TrainJob, listers: Listers) -> bool:
    """Return whether a workload is left alone as well. Suspending stops it, and it is resumed with the latest."""
    if job.spec.suspend:
        return False
    return any(not (each.get("spec") or {}).get("suspend", False) for each in listers.workloads(job))


MAX_CONFIG_BYTES: Final = 1_000_000
"""Of what is written once for each pod: a ConfigMap holds 1 MiB, and there is more in it. Whoever writes such texts
looks at their length before they are written, for a user may ask for any number of pods.
"""

Entropy = Callable[[int], bytes]
"""Gives so many random bytes; `os.urandom` is one."""

_P521_ORDER: Final = 2**521 - 0x5AE79787C40D069948033FEB708F65A2FC44A36477663B851449048E16EC79BF7

_P521_SEED_BYTES: Final = 74
"""64 bits more than the order has, so that the remainder is as good as uniform (FIPS 186-5, A.2.1)."""

_CURVE_KEY_BYTES: Final = 32

# Python's Base85 groups bits as ZeroMQ's Z85 does, but spells the digits otherwise.
_BASE85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85: Final = bytes.maketrans(_BASE85, _Z85)


def checked_entropy(entropy: object) -> Entropy:
    """Take a source of randomness, but nothing else: a configuration file, for instance, cannot hold one.

    Raises:
        TypeError: It is no function.
    """
    if not callable(entropy):
        raise TypeError(f"entropy must be a function that gives random bytes, not {entropy!r}")
    return entropy


@dataclass(frozen=True, slots=True)
class SSHKeyPair:
    """A key pair in the formats of OpenSSH."""

    private: bytes
    public: bytes


def ssh_key_pair(entropy: Entropy) -> SSHKeyPair:
    """Make an ECDSA key pair on the curve P-521."""
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - costs time that few jobs are worth
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - as above
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    seed = int.from_bytes(entropy(_P521_SEED_BYTES), "big")
    key = ec.derive_private_key(seed % (_P521_ORDER - 1) + 1, ec.SECP521R1())
    return SSHKeyPair(
        private=key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        public=key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n",
    )


def curve_certificate(name: str, entropy: Entropy) -> str:
    """Make a ZeroMQ CURVE certificate with its secret key, as `flux keygen` writes it."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415 - as above

    secret = entropy(_CURVE_KEY_BYTES)
    public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return (
        "# The CURVE certificate of a Flux instance, with its secret key.\n"
        "metadata\n"
        f'    name = "{name}"\n'
        "curve\n"
        f'    public-key = "{z85(public)}"\n'
        f'    secret-key = "{z85(secret)}"\n'
    )


def z85(raw: bytes) -> str:
    """Encode bytes, a multiple of four, as ZeroMQ does (ZMTP RFC 32)."""
    return b85encode(raw).translate(_TO_Z85).decode()
