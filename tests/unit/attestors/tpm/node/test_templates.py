"""How endorsement keys' policies are fulfilled, against the digests that the EK Credential Profile prints."""

from __future__ import annotations

import pytest

from attestors.tpm import attestation_key
from attestors.tpm import constants as tpm
from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.node.templates import ENDORSEMENT_CHOICES, UnknownPolicy, authorization


def test_low_range_policy_needs_the_secret_alone() -> None:
    assert authorization(tpm.POLICY_A_SHA256).alternatives == ()


@pytest.mark.parametrize(
    ("policy", "algorithm"),
    [(tpm.POLICY_B_SHA256, HashAlgorithm.SHA256), (tpm.POLICY_B_SHA384, HashAlgorithm.SHA384)],
    ids=["SHA-256", "SHA-384"],
)
def test_high_range_policy_is_one_of_two(policy: bytes, algorithm: HashAlgorithm) -> None:
    found = authorization(policy)
    assert found.hash_algorithm == algorithm
    by_secret, by_owner = found.alternatives
    assert authorization(by_secret).alternatives == ()
    assert len(by_owner) == algorithm.digest_bytes


@pytest.mark.parametrize("policy", [b"", bytes(32), tpm.POLICY_A_SHA256[:-1]])
def test_unknown_policy(policy: bytes) -> None:
    with pytest.raises(UnknownPolicy, match="EK Credential Profile"):
        authorization(policy)


def test_controller_knows_every_endorsement_key() -> None:
    assert [choice.title for choice in ENDORSEMENT_CHOICES] == [
        template.title for template in attestation_key.ENDORSEMENT_TEMPLATES
    ]
    for template in attestation_key.ENDORSEMENT_TEMPLATES:
        assert authorization(template.authorization_policy).hash_algorithm == template.name_algorithm
