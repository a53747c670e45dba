"""Secret ``<cluster>-signing``."""

from __future__ import annotations

import pytest

from signer.rotation.authorities import Role
from signer.rotation.facts import Absent, SigningFacts, Unusable
from signer.rotation.secrets import Pair, encoded
from signer.rotation.signing_secret import read_signing, signing_data
from tests.unit.signer.rotation.certificates import authority, pair_of

OLD, NEW = (pair_of(authority(role)) for role in Role)


def test_it_is_read_as_it_was_written() -> None:
    data = signing_data(NEW, OLD)
    assert data.keys() == {"client.crt", "client.key", "serving.crt", "serving.key"}
    assert read_signing({"data": encoded(data)}) == SigningFacts(NEW.reference.digest, OLD.reference.digest)
    assert read_signing({}) == Absent()


@pytest.mark.parametrize("missing", ["client.crt", "client.key", "serving.crt", "serving.key"])
def test_each_pair_must_be_whole(missing: str) -> None:
    data = {name: value for name, value in signing_data(NEW, OLD).items() if name != missing}
    found = read_signing({"data": encoded(data)})
    assert isinstance(found, Unusable)
    assert missing.partition(".")[0] in found.message


@pytest.mark.parametrize(
    "client",
    [
        Pair(NEW.reference, NEW.certificate, OLD.key),
        Pair(NEW.reference, NEW.certificate + OLD.certificate, NEW.key),
        Pair(NEW.reference, b"-----BEGIN", NEW.key),
    ],
    ids=["another key", "two certificates", "no certificate"],
)
def test_a_pair_with_which_a_controller_manager_would_exit(client: Pair) -> None:
    assert isinstance(read_signing({"data": encoded(signing_data(client, OLD))}), Unusable)


def test_data_that_is_no_base64() -> None:
    assert isinstance(read_signing({"data": {"client.crt": "%"}}), Unusable)
