from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from attestors.clouds.google.answers import EncryptionKey, Instance, NoKey, ShieldedInstanceIdentity
from attestors.clouds.json_objects import InvalidObject
from tests.support.fake_google.compute import instance_document, shielded_document
from tests.unit.attestors.clouds.google.support import INSTANCE
from tests.unit.attestors.support import PATIENT

RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
P256: Final = ec.generate_private_key(ec.SECP256R1()).public_key()
P384: Final = ec.generate_private_key(ec.SECP384R1()).public_key()

Change = Callable[[dict[str, Any]], object]


def pem(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def read(document: dict[str, Any], name: str = INSTANCE.name) -> Instance:
    return Instance.read(document, INSTANCE.project, INSTANCE.zone, name)


def test_an_instance() -> None:
    instance = read(instance_document(INSTANCE))
    assert (instance.name, instance.instance_id) == (INSTANCE.name, INSTANCE.instance_id)
    assert read(instance_document(INSTANCE), INSTANCE.instance_id) == instance


def test_times_have_the_zone_that_the_answer_says() -> None:
    document = instance_document(INSTANCE) | {"creationTimestamp": "2026-01-01T00:30:15.250-08:00"}
    assert read(document).created == datetime(2026, 1, 1, 8, 30, 15, 250000, tzinfo=UTC)


def _nested(name: str, value: object) -> Change:
    return lambda document: document["networkInterfaces"][0].update({name: value})


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(kind="compute#instanceTemplate"),
        lambda document: document.pop("kind"),
        lambda document: document.pop("id"),
        lambda document: document.update(id=4711),
        lambda document: document.update(id="04711"),
        lambda document: document.update(id=str(2**64)),
        lambda document: document.pop("name"),
        lambda document: document.update(name="Worker"),
        lambda document: document.update(name="worker-2"),
        lambda document: document.pop("zone"),
        lambda document: document.update(zone=document["zone"].replace("europe", "us")),
        lambda document: document.pop("selfLink"),
        lambda document: document.update(selfLink=document["selfLink"].replace("workloads", "other")),
        lambda document: document.update(selfLink=document["selfLink"].replace("europe", "us")),
        lambda document: document.update(selfLink=document["selfLink"] + "/x"),
        lambda document: document.pop("status"),
        lambda document: document.update(status="running"),
        lambda document: document.update(status=["RUNNING"]),
        lambda document: document.pop("creationTimestamp"),
        lambda document: document.update(creationTimestamp="yesterday"),
        lambda document: document.update(creationTimestamp="2026-01-01T00:30:15"),
        lambda document: document.update(hostname="a b"),
        lambda document: document.update(hostname=None),
        lambda document: document.update(networkInterfaces={}),
        lambda document: document.update(networkInterfaces=[{}] * 65),
        _nested("networkIP", "10.0.0.256"),
        _nested("networkIP", "10.0.0.1/24"),
        _nested("networkIP", 167772161),
        _nested("ipv6Address", "fe80::1::2"),
        _nested("accessConfigs", [{"natIP": "public"}]),
        _nested("accessConfigs", "203.0.113.9"),
        _nested("ipv6AccessConfigs", [{"externalIpv6": "x"}]),
    ],
    ids=range(32),
)
def test_an_answer_of_another_form_or_about_another_instance_says_nothing(change: Change) -> None:
    document = instance_document(INSTANCE)
    change(document)
    with pytest.raises(InvalidObject):
        read(document)


def test_the_number_that_was_asked_for_is_the_one_that_is_answered_about() -> None:
    with pytest.raises(InvalidObject, match="another name"):
        read(instance_document(INSTANCE), "4711000000000000002")


def test_an_external_ipv6_address() -> None:
    document = instance_document(INSTANCE)
    document["networkInterfaces"][1]["ipv6AccessConfigs"] = [{"externalIpv6": "2001:db8::1"}]
    assert [str(address) for address in read(document).external_addresses] == ["203.0.113.9", "2001:db8::1"]


def test_shielded_keys() -> None:
    shielded = replace(
        INSTANCE, encryption_key=pem(RSA), elliptic_encryption_key=pem(P256), encryption_certificate="certificate"
    )
    identity = ShieldedInstanceIdentity.read(shielded_document(shielded))
    assert isinstance(identity.rsa, EncryptionKey)
    assert identity.rsa.certificate_pem == "certificate"
    assert identity.rsa.subject_public_key_info == RSA.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert isinstance(identity.elliptic, EncryptionKey)
    assert identity.elliptic.certificate_pem == ""
    assert identity.keys == (identity.rsa, identity.elliptic)


@pytest.mark.parametrize("entry", [{}, {"ekPub": ""}, {"ekPub": "", "ekCert": ""}, {"ekCert": "x"}], ids=range(4))
def test_no_shielded_keys(entry: dict[str, str]) -> None:
    identity = ShieldedInstanceIdentity.read({"kind": "compute#shieldedInstanceIdentity", "encryptionKey": entry})
    assert identity == ShieldedInstanceIdentity(NoKey(), NoKey())
    assert identity.keys == ()


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("encryptionKey", None),
        ("encryptionKey", "key"),
        ("encryptionKey", {"ekPub": 7}),
        ("encryptionKey", {"ekPub": None}),
        ("encryptionKey", {"ekPub": pem(P256)}),
        ("encryptionKey", {"ekPub": pem(RSA) + pem(RSA)}),
        ("encryptionKey", {"ekPub": "x" + pem(RSA)}),
        ("encryptionKey", {"ekPub": pem(RSA).replace("PUBLIC", "RSA PUBLIC")}),
        ("encryptionKey", {"ekPub": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}),
        ("encryptionKey", {"ekPub": "A" * 5000}),
        ("encryptionKey", {"ekPub": pem(RSA), "ekCert": "x" * 40_000}),
        ("eccP256EncryptionKey", {"ekPub": pem(RSA)}),
        ("eccP256EncryptionKey", {"ekPub": pem(P384)}),
        ("kind", "compute#instance"),
    ],
    ids=range(14),
)
def test_keys_of_another_form_or_kind_say_nothing(name: str, entry: object) -> None:
    document = {"kind": "compute#shieldedInstanceIdentity", "encryptionKey": {"ekPub": pem(RSA)}, name: entry}
    with pytest.raises(InvalidObject):
        ShieldedInstanceIdentity.read(document)


def test_an_rsa_key_is_bounded() -> None:
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()  # noqa: S505 - refused
    entry = {"ekPub": pem(small)}
    with pytest.raises(InvalidObject, match="not an RSA key of 2048 to 4096 bits"):
        ShieldedInstanceIdentity.read({"kind": "compute#shieldedInstanceIdentity", "encryptionKey": entry})


_JSON = (
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.text())
)


@PATIENT
@given(st.sampled_from(sorted(instance_document(INSTANCE))), _JSON)
def test_any_value_anywhere_is_read_or_refused(name: str, value: object) -> None:
    document = json.loads(json.dumps(instance_document(INSTANCE)))
    document[name] = value
    try:
        assert read(document).name == INSTANCE.name
    except InvalidObject as error:
        assert len(str(error)) < 200  # noqa: PT017 - either is right
