"""Records the output of a software TPM: ``python -m tests.support.record_tpm FILE``.

For ``fixtures/tpm``. It needs swtpm (``tests/provision/provision.sh tpm``) and tpm2-pytss (the extra ``tpm``), and
never overwrites: a recording stays as it was.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attestors.tpm import constants as tpm
from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES, AttestationKey, EndorsementKey, EndorsementTemplate
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute, SignatureAlgorithm
from attestors.tpm.credential import make_credential
from attestors.tpm.statement import decode_quote
from attestors.tpm.structures import ECCKey, PublicArea, RSAKey, Scheme
from tests.support.software_tpm import SoftwareTPM
from tests.support.tpm_chip import Chip

PCR_BANKS: Final = "sha1,sha256,sha384"
ATTRIBUTES: Final = tpm.ATTESTATION_KEY_REQUIRED | ObjectAttribute.USER_WITH_AUTH
SELECTION: Final = "sha256:0,1,7"
SUPPORTED_TEMPLATES: Final = tuple(template for template in ENDORSEMENT_TEMPLATES if template.title != "H-7")
"""swtpm makes no RSA keys of 4096 bits."""
_SHA256_RSASSA: Final = bytes.fromhex("0014000b")
_SHA1_RSASSA: Final = bytes.fromhex("00140004")


def attestation_template(
    algorithm: SignatureAlgorithm,
    kind: int | Curve,
    hash_algorithm: HashAlgorithm = HashAlgorithm.SHA256,
    attributes: ObjectAttribute = ATTRIBUTES,
) -> PublicArea:
    """The TPMT_PUBLIC template of such a signing key."""
    key = ECCKey(kind, b"", b"") if isinstance(kind, Curve) else RSAKey(kind, 0, b"")
    name_algorithm = HashAlgorithm.SHA256
    return PublicArea(name_algorithm, attributes, b"", None, Scheme(algorithm, hash_algorithm), key)


def endorsement_template(template: EndorsementTemplate) -> PublicArea:
    """The TPMT_PUBLIC template of this endorsement key (a low-range one has zeros as its unique)."""
    kind, low = template.kind, template.title.startswith("L")
    key: RSAKey | ECCKey
    if isinstance(kind, Curve):
        zeros = bytes(kind.coordinate_bytes if low else 0)
        key = ECCKey(kind, zeros, zeros)
    else:
        key = RSAKey(kind, 0, bytes(kind // 8 if low else 0))
    return PublicArea(
        template.name_algorithm,
        template.attributes,
        template.authorization_policy,
        template.symmetric_key_bits,
        None,
        key,
    )


RSASSA: Final = attestation_template(SignatureAlgorithm.RSASSA, 2048)
ATTESTATION_TEMPLATES: Final[Mapping[str, PublicArea]] = {
    "RSASSA 2048 SHA-256": RSASSA,
    "RSASSA 3072 SHA-384": attestation_template(SignatureAlgorithm.RSASSA, 3072, HashAlgorithm.SHA384),
    "RSAPSS 2048 SHA-256": attestation_template(SignatureAlgorithm.RSAPSS, 2048),
    "ECDSA P-256 SHA-256": attestation_template(SignatureAlgorithm.ECDSA, Curve.NIST_P256),
    "ECDSA P-384 SHA-384": attestation_template(SignatureAlgorithm.ECDSA, Curve.NIST_P384, HashAlgorithm.SHA384),
    "ECDSA P-521 SHA-512": attestation_template(SignatureAlgorithm.ECDSA, Curve.NIST_P521, HashAlgorithm.SHA512),
    "exempt from the dictionary attack lockout": attestation_template(
        SignatureAlgorithm.RSASSA, 2048, attributes=ATTRIBUTES | ObjectAttribute.NO_DA
    ),
}


def record(file: Path) -> None:
    """Write ``file``.

    Raises:
        FileExistsError: ``file`` exists.
        MissingPart: swtpm is not installed.
    """
    if file.exists():
        raise FileExistsError(f"{file} is recorded already, and a recording is never replaced")
    with SoftwareTPM(pcr_banks=PCR_BANKS) as software_tpm, Chip(software_tpm) as chip:
        for index in (0, 1, 7, 16):
            chip.extend(index, b"event of register %d" % index)
        recording = {
            "recordedWith": _version(),
            "quotes": _quotes(chip),
            "refusedQuotes": _refused_quotes(chip),
            "credentials": [_credential(chip, template) for template in SUPPORTED_TEMPLATES],
        }
    file.write_text(json.dumps(recording, indent=2) + "\n", encoding="utf-8")


def _quotes(chip: Chip) -> list[dict[str, str]]:
    selections = ("sha384:0,1,7,16", "sha256:0,7+sha384:1,23", "sha384:2+sha256:0", "sha256:23")
    return [
        *(_quote(chip, title, template.encode()) for title, template in ATTESTATION_TEMPLATES.items()),
        *(_quote(chip, f"of {selection}", RSASSA.encode(), selection) for selection in selections),
        _quote(chip, "by a key under the owner's hierarchy", RSASSA.encode(), owner=True),
    ]


def _refused_quotes(chip: Chip) -> list[dict[str, str]]:
    """Quotes that a real TPM makes, and that must be refused."""
    with_sha1 = RSASSA.encode().replace(_SHA256_RSASSA, _SHA1_RSASSA)
    return [
        _quote(chip, "signed with SHA-1", with_sha1),
        _quote(chip, "of the SHA-1 bank", RSASSA.encode(), "sha1:0,1,7"),
        _forgery(chip),
    ]


def _quote(
    chip: Chip, title: str, template: bytes, selection: str = SELECTION, *, owner: bool = False
) -> dict[str, str]:
    extra_data = secrets.token_bytes(32)
    with chip.primary(template, owner=owner) as (handle, public):
        quote, signature = chip.quote(handle, selection, extra_data)
    return _as_text(title, selection, public, extra_data, quote, signature, chip.pcr_values(selection))


def _forgery(chip: Chip) -> dict[str, str]:
    """Arbitrary values signed by an unrestricted key, for which the TPM activates a credential nevertheless."""
    unrestricted = attestation_template(
        SignatureAlgorithm.RSASSA, 2048, attributes=ATTRIBUTES & ~ObjectAttribute.RESTRICTED
    )
    extra_data = secrets.token_bytes(32)
    with chip.primary(RSASSA.encode()) as (handle, _):
        genuine, _ = chip.quote(handle, SELECTION, secrets.token_bytes(32))
    forged = genuine.replace(decode_quote(genuine).extra_data, extra_data)
    with chip.primary(unrestricted.encode()) as (handle, public):
        signature = chip.sign(handle, forged)
    title = "forged by an unrestricted key"
    return _as_text(title, SELECTION, public, extra_data, forged, signature, chip.pcr_values(SELECTION))


def _as_text(title: str, selection: str, *parts: bytes) -> dict[str, str]:
    names = ("attestationKey", "extraData", "quote", "signature", "pcrValues")
    return {
        "title": title,
        "pcrSelection": selection,
        **{name: part.hex() for name, part in zip(names, parts, strict=True)},
    }


def _credential(chip: Chip, template: EndorsementTemplate) -> dict[str, str]:
    """A credential made here and activated by the TPM, with its random bytes."""
    with (
        chip.primary(endorsement_template(template).encode()) as (ek_handle, ek_public),
        chip.primary(RSASSA.encode()) as (ak_handle, ak_public),
    ):
        secret, random = secrets.token_bytes(32), b""

        def random_bytes(count: int) -> bytes:
            nonlocal random
            random = secrets.token_bytes(count)
            return random

        credential = make_credential(
            EndorsementKey.decode(ek_public), AttestationKey.decode(ak_public), secret, random_bytes=random_bytes
        )
        if chip.activate(ak_handle, ek_handle, credential.id_object, credential.encrypted_secret) != secret:
            raise RuntimeError(f"the TPM read another secret with its endorsement key {template.title}")
    return {
        "template": template.title,
        "endorsementKey": ek_public.hex(),
        "attestationKey": ak_public.hex(),
        "randomBytes": random.hex(),
        "secret": secret.hex(),
        "idObject": credential.id_object.hex(),
        "encryptedSecret": credential.encrypted_secret.hex(),
    }


def _version() -> str:
    swtpm = shutil.which("swtpm")
    output = subprocess.run([str(swtpm), "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    return output.splitlines()[0].split(",")[0].strip()


def main(arguments: list[str]) -> int:
    """Run it."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    record(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
