from __future__ import annotations

import copy
import dataclasses
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire import binding
from attestors.wire.binding import Binding, BindingMismatch, CACertHash, InvalidCACertHash, ProvenBinding
from attestors.wire.names import Purpose, SignerName
from tests.unit.attestors.support import CLUSTER, PATIENT

VALUE = bytes(range(32))
SIGNER = SignerName(Purpose.CLIENT, "tpm")
KEY = b"subject public key info"

hashes = st.binary(min_size=32, max_size=32).map(lambda digest: CACertHash("sha256:" + digest.hex()))
inputs = st.tuples(
    st.text(max_size=8, alphabet="v0123456789"),
    hashes,
    st.builds(SignerName, st.sampled_from(Purpose), st.sampled_from(["tpm", "tpm-2", "aws", "a"])),
    st.binary(max_size=100),
)


def compute(version: str, cluster: CACertHash, signer: SignerName, key: bytes) -> bytes:
    return binding.compute(
        evidence_version=version, cluster=cluster, signer_name=signer, subject_public_key_info=key
    ).value


class TestCompute:
    def test_is_what_the_protocol_says(self) -> None:
        """Written out by hand: changing this value makes every released node's evidence worthless."""
        expected = hashlib.sha256(
            b"\0\0\0\0\0\0\0\x1b"
            b"node-attestation binding v1"
            b"\0\0\0\0\0\0\0\x02"
            b"v1"
            b"\0\0\0\0\0\0\0\x47"
            b"sha256:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"
            b"\0\0\0\0\0\0\0\x32"
            b"cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm"
            b"\0\0\0\0\0\0\0\x17"
            b"subject public key info"
        ).hexdigest()
        assert expected == "d84b79381d016d30588e095a453f43f2eb34daa94bcfb53a74cf0fdd1f403fa9"
        assert compute("v1", CLUSTER, SIGNER, KEY).hex() == expected

    @pytest.mark.parametrize(
        "changed",
        [
            pytest.param(("v2", CLUSTER, SIGNER, KEY), id="evidence-version"),
            pytest.param(("v1", CACertHash("sha256:" + "1f" * 32), SIGNER, KEY), id="cluster"),
            pytest.param(("v1", CLUSTER, SignerName(Purpose.SERVING, "tpm"), KEY), id="purpose"),
            pytest.param(("v1", CLUSTER, SignerName(Purpose.CLIENT, "aws"), KEY), id="provider"),
            pytest.param(("v1", CLUSTER, SIGNER, b"another key"), id="key"),
            pytest.param(("v1", CLUSTER, SIGNER, KEY + b"\0"), id="key-with-a-byte-behind"),
            pytest.param(("v1", CLUSTER, SIGNER, b""), id="no-key"),
        ],
    )
    def test_every_input_counts(self, changed: tuple[str, CACertHash, SignerName, bytes]) -> None:
        assert compute(*changed) != compute("v1", CLUSTER, SIGNER, KEY)

    @PATIENT
    @given(inputs, inputs)
    def test_different_inputs_have_different_bindings(
        self,
        one: tuple[str, CACertHash, SignerName, bytes],
        two: tuple[str, CACertHash, SignerName, bytes],
    ) -> None:
        assert (compute(*one) == compute(*two)) is (one == two)

    def test_bytes_cannot_move_from_one_input_to_the_next(self) -> None:
        """Without the lengths, a key of the attacker's could begin with the end of a shorter signer name."""
        short, long = SignerName(Purpose.CLIENT, "t"), SignerName(Purpose.CLIENT, "tpm")
        assert str(short) + "pm" == str(long)
        assert compute("v1", CLUSTER, short, b"pm" + KEY) != compute("v1", CLUSTER, long, KEY)

    def test_a_length_cannot_be_imitated_by_content(self) -> None:
        """A key that contains what a signer name and another key would look like."""
        inner = len(str(SIGNER)).to_bytes(8, "big") + str(SIGNER).encode() + len(KEY).to_bytes(8, "big") + KEY
        assert compute("v1", CLUSTER, SIGNER, KEY) != compute("v1", CLUSTER, SIGNER, inner)


class TestProve:
    def test_returns_the_proof(self) -> None:
        assert Binding(VALUE).prove(bytes(VALUE)).value == VALUE

    @pytest.mark.parametrize(
        "committed",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(VALUE[:-1], id="short"),
            pytest.param(VALUE + b"\0", id="long"),
            pytest.param(VALUE[:16], id="half"),
            pytest.param(bytes(32), id="zeros"),
            pytest.param(VALUE[::-1], id="reversed"),
            pytest.param(VALUE[:-1] + b"\0", id="last-byte"),
            pytest.param(VALUE.hex().encode(), id="hexadecimal"),
        ],
    )
    def test_refuses_another_commitment(self, committed: bytes) -> None:
        with pytest.raises(BindingMismatch):
            Binding(VALUE).prove(committed)

    @PATIENT
    @given(st.binary(max_size=64).filter(lambda committed: committed != VALUE))
    def test_refuses_any_other_bytes(self, committed: bytes) -> None:
        with pytest.raises(BindingMismatch):
            Binding(VALUE).prove(committed)

    def test_compares_with_what_is_derived(self) -> None:
        def mac(value: bytes) -> bytes:
            return hmac.digest(b"key", value, "sha256")

        proven = Binding(VALUE).prove(mac(VALUE), through=mac)
        assert proven.value == VALUE, "the proof is of the binding, not of what was derived from it"
        for committed in (VALUE, hmac.digest(b"another key", VALUE, "sha256"), mac(bytes(32)), b""):
            with pytest.raises(BindingMismatch):
                Binding(VALUE).prove(committed, through=mac)

    @pytest.mark.parametrize(
        "derive",
        [
            pytest.param(lambda value: b"", id="nothing"),
            pytest.param(lambda value: value[:16], id="half"),
            pytest.param(lambda value: value[:31], id="one-byte-short"),
        ],
    )
    def test_a_derivation_that_says_too_little_proves_nothing(self, derive: Callable[[bytes], bytes]) -> None:
        """Empty evidence must not meet an empty expectation."""
        with pytest.raises(BindingMismatch):
            Binding(VALUE).prove(derive(VALUE), through=derive)

    def test_a_longer_derivation_is_compared_completely(self) -> None:
        def derive(value: bytes) -> bytes:
            return hashlib.sha512(value).digest()

        assert Binding(VALUE).prove(derive(VALUE), through=derive).value == VALUE
        with pytest.raises(BindingMismatch):
            Binding(VALUE).prove(derive(VALUE)[:32], through=derive)

    def test_an_error_of_the_derivation_is_no_proof(self) -> None:
        def fail(value: bytes) -> bytes:
            raise RuntimeError("no key")

        with pytest.raises(RuntimeError, match="no key"):
            Binding(VALUE).prove(VALUE, through=fail)

    def test_the_refusal_does_not_tell_the_expected_value(self) -> None:
        with pytest.raises(BindingMismatch) as refused:
            Binding(VALUE).prove(bytes(32))
        assert VALUE.hex() not in str(refused.value)
        assert repr(VALUE) not in str(refused.value)


class TestProvenBinding:
    @pytest.mark.parametrize("seal", [None, object(), True, VALUE])
    def test_cannot_be_made_by_hand(self, seal: object) -> None:
        with pytest.raises(TypeError, match=r"Binding\.prove"):
            ProvenBinding(VALUE, seal)

    def test_needs_a_seal(self) -> None:
        with pytest.raises(TypeError):
            ProvenBinding(VALUE)  # type: ignore[call-arg]

    def test_does_not_give_its_seal_away(self) -> None:
        proven = Binding(VALUE).prove(VALUE)
        assert [field.name for field in dataclasses.fields(proven)] == ["value"]
        assert not hasattr(proven, "seal")

    def test_cannot_become_a_proof_of_something_else(self) -> None:
        proven = Binding(VALUE).prove(VALUE)
        with pytest.raises((ValueError, TypeError)):
            dataclasses.replace(proven, value=bytes(32))  # type: ignore[call-arg]
        with pytest.raises(AttributeError):
            proven.value = bytes(32)  # type: ignore[misc]

    def test_a_copy_proves_the_same(self) -> None:
        proven = Binding(VALUE).prove(VALUE)
        assert copy.copy(proven) == proven


@pytest.mark.parametrize("value", [b"", b"x" * 31, b"x" * 33])
def test_a_binding_has_32_bytes(value: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Binding(value)


class TestCACertHash:
    def test_is_kubeadms_discovery_hash(self) -> None:
        assert CACertHash.of(KEY).text == "sha256:" + hashlib.sha256(KEY).hexdigest()

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "0f" * 32,
            "sha256:",
            "sha256:" + "0f" * 31,
            "sha256:" + "0f" * 33,
            "sha256:" + "0F" * 32,
            "SHA256:" + "0f" * 32,
            "sha512:" + "0f" * 32,
            "sha256:" + "0g" * 32,
            "sha256:" + "0f" * 32 + "\n",
            " sha256:" + "0f" * 32,
            "sha256:" + "\u0660" * 64,
        ],
    )
    def test_refuses_every_other_form(self, text: str) -> None:
        with pytest.raises(InvalidCACertHash):
            CACertHash(text)
