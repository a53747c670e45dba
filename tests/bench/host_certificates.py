"""Measures the controller's CPU time for one SSH host certificate: ``python -m tests.bench.host_certificates``.

It is what a host key in a request costs: from the extension's bytes to the text behind the kubelet's
certificate, without reads and writes. Two signatures are verified, the requester's proof and the new certificate, and
one is made; what these cost alone is measured beside it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.node_access import NodeAccess, Trust, render
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh_host_keys import HostKeysClaim, claim_with, encode
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.authority.ssh.private_key import new_private_key
from signer.decision.host_certificates import certificate_request
from signer.model.service_networks import ReportedServices
from signer.model.serving_facts import ServingFacts
from signer.model.ssh_access import NoRotationPeriod, SSHSettings
from signer.rules.host_certificates import HostAuthorityFacts, HostNameFacts, planned_host_keys, proven_host_keys
from tests.bench.verification import RUNS, Verification, measure
from tests.unit.signer.builders import ec_key, machine_facts, record

_KEYS: Final = 2048
"""Different host keys, so that nothing is found in a cache that a fleet's keys would not be in."""
_SPKI: Final = ec_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def measure_host_certificates(runs: int = RUNS) -> list[Verification]:
    """One Ed25519 host key a request, certified by an Ed25519 authority."""
    return [
        measure("SSH host certificate", _issuing(), runs),
        measure("of that: Ed25519, twice verified and once signed", _primitives(), runs),
    ]


def _issuing() -> Callable[[], None]:
    host, user = HostAuthority(new_private_key()), UserAuthority(new_private_key())
    trust = Trust((user.public_key,), (), (host.public_key,), 7)
    trusted = (key_line(user.public_key), key_line(host.public_key))
    authority = HostAuthorityFacts(key_line(host.public_key), host.public_key.fingerprint, trusted, "0123")
    names = HostNameFacts(frozenset(), ServingFacts(reported_services=ReportedServices((), frozenset({4, 6}))))
    settings = SSHSettings(timedelta(days=30), (), NoRotationPeriod())
    facts, kept, serials = machine_facts(), record(), itertools.count(1)
    values = itertools.cycle(
        [encode(HostKeysClaim(7, (claim_with(Ed25519PrivateKey.generate(), _SPKI),))) for _ in range(_KEYS)]
    )

    def issue() -> None:
        proven = proven_host_keys(next(values), _SPKI)
        planned = planned_host_keys(proven, (next(serials),), facts, names, (), authority, settings)
        signed = tuple(host.sign(certificate_request(planned, one, kept, b"k" * 32)) for one in planned.host_keys)
        render(NodeAccess(signed, trust))

    return issue


def _primitives() -> Callable[[], None]:
    key, message = Ed25519PrivateKey.generate(), b"m" * 512
    public, signature = key.public_key(), key.sign(message)

    def sign_and_verify() -> None:
        public.verify(signature, message)
        key.sign(message)
        public.verify(signature, message)

    return sign_and_verify


def main() -> int:
    """Print the measurements."""
    for measured in measure_host_certificates():
        print(measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
