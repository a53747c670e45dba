"""``python -m attestors.tpm``: verifies a TPM's certificate or quote as the controller does, without controller or TPM.

For operators who want to check, before any machine joins, that their folders hold their machines' authorities, and for
reviewers. The input files are those that tpm2-tools write.
"""

from __future__ import annotations

import argparse
import binascii
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from attestors.command_parser import CommandParser
from attestors.tpm.attestation_key import EndorsementKey, UnsuitableKey
from attestors.tpm.endorsement import (
    AuthoritiesUnreadable,
    ChipNamed,
    EndorsementCertificateRefused,
    load_endorsement_authorities,
    verify_endorsement_certificate,
)
from attestors.tpm.endorsement.certificate import read_stored_certificate
from attestors.tpm.quote import Nonce, QuoteRefused, verify_quote
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.selection import InvalidPCRSelection, PCRSelection
from attestors.tpm.structures import PublicKey
from attestors.wire.binding import BindingMismatch

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2

_PEM: Final = re.compile(rb"-----BEGIN (CERTIFICATE|PUBLIC KEY)-----(.*?)-----END \1-----", re.DOTALL)
_SIZE_BYTES: Final = 2
_SEQUENCE: Final = b"\x30"
_REFUSED: Final = (EndorsementCertificateRefused, MalformedStructure, UnsuitableKey, BindingMismatch, QuoteRefused)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 verified; 1 refused, with the reason printed; 2 wrong usage, or an unusable file."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names in certificates may be in any script
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        for name, value in options.verify(options).items():
            print(f"{name:<16}{value}")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, for example `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except _REFUSED as error:
        print(f"refused: {error}")
        return EXIT_REFUSED
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    except AuthoritiesUnreadable as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m attestors.tpm",
        description="Verifies a TPM's certificate or quote like the controller. Exit code 0 verified, 1 refused.",
    )
    kinds = parser.add_subparsers(required=True, metavar="COMMAND")
    certificate = kinds.add_parser("endorsement", help="verify an endorsement key certificate")
    certificate.set_defaults(verify=_verify_certificate)
    certificate.add_argument("certificate", type=Path, metavar="FILE", help="as stored in NV, or in PEM")
    certificate.add_argument("--roots", type=Path, required=True, metavar="FILE|FOLDER", help="endorsementRootsFolder")
    certificate.add_argument("--intermediates", type=Path, metavar="FILE|FOLDER", help="endorsementIntermediatesFolder")
    certificate.add_argument("--chain", type=Path, metavar="FILE", help="authorities from the TPM, as stored or in PEM")
    certificate.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help="the TPM's endorsement key: PEM, DER, or its public area (default: the certificate's)",
    )
    certificate.add_argument("--accept-expired", action="store_true", help="acceptExpiredAuthorities")
    certificate.add_argument("--at", type=_time, metavar="TIME", help="such as 2026-01-02T03:04:05Z (default: now)")
    quote = kinds.add_parser("quote", help="verify a quote of PCRs by an attestation key")
    quote.set_defaults(verify=_verify_quote)
    for flag, text in (
        ("--ak", "public area of the attestation key: tpm2_createak --public, tpm2_readpublic --output"),
        ("--quote", "tpm2_quote --message"),
        ("--signature", "tpm2_quote --signature"),
        ("--values", "tpm2_quote --pcr, with --pcrs_format values"),
    ):
        quote.add_argument(flag, type=Path, required=True, metavar="FILE", help=text)
    quote.add_argument("--pcrs", type=_selection, required=True, metavar="SELECTION", help="such as sha256:0,1,7")
    quote.add_argument("--nonce", type=_nonce, required=True, metavar="HEX", help="tpm2_quote --qualification")
    return parser


def _verify_certificate(options: argparse.Namespace) -> Mapping[str, object]:
    authorities = load_endorsement_authorities(
        roots=_files(options.roots),
        intermediates=_files(options.intermediates) if options.intermediates is not None else {},
        accept_expired=options.accept_expired,
    )
    certificate = _without_pem(options.certificate.read_bytes())
    own = read_stored_certificate(certificate).public_key
    verified = verify_endorsement_certificate(
        certificate,
        endorsement_key=own if options.key is None else _endorsement_key(options.key.read_bytes()),
        authorities=authorities,
        at=options.at or datetime.now(UTC),
        intermediates=() if options.chain is None else _pem_blocks(options.chain.read_bytes()),
    )
    return {
        "verified": "a manufacturer vouches for this endorsement key",
        "fingerprint": f"sha256:{verified.public_key_sha256}",
        "manufacturer": verified.manufacturer or "not named",
        "model": verified.model or "not named",
        "chip": verified.chip.name if isinstance(verified.chip, ChipNamed) else "not named",
        "chip by subject": (
            verified.chip_in_subject.name if isinstance(verified.chip_in_subject, ChipNamed) else "not named"
        ),
        "issuer": verified.issuer,
        "root": verified.root,
        "valid": f"{verified.not_before:%Y-%m-%d} to {verified.not_after:%Y-%m-%d}",
        "key": "the certificate's own; compare a TPM's key with --key" if options.key is None else "the TPM's",
    }


def _verify_quote(options: argparse.Namespace) -> Mapping[str, object]:
    verified = verify_quote(
        ak_public=_public_area(options.ak.read_bytes()),
        quote=options.quote.read_bytes(),
        signature=options.signature.read_bytes(),
        pcr_values=options.values.read_bytes(),
        selection=options.pcrs,
        extra_data=Nonce(options.nonce),
    )
    return {
        "verified": "a TPM that holds this attestation key made this quote, for this nonce",
        "key": f"name {verified.attestation_key.name.hex()}",
        **{str(pcr): value.hex() for pcr, value in verified.pcrs.items()},
    }


def _files(path: Path) -> Mapping[str, bytes]:
    """The file, or every file of a folder except hidden ones, as the controller reads them."""
    if not path.is_dir():
        return {path.name: path.read_bytes()}
    found = sorted(one for one in path.iterdir() if not one.name.startswith(".") and not one.is_dir())
    return {one.name: one.read_bytes() for one in found}


def _without_pem(data: bytes) -> bytes:
    """The content of the first PEM block, or the data itself if it is not PEM."""
    return _pem_blocks(data)[0]


def _pem_blocks(data: bytes) -> Sequence[bytes]:
    """The contents of the PEM blocks, or the data itself if it holds no readable block."""
    try:
        return [binascii.a2b_base64(b"".join(body.split())) for _, body in _PEM.findall(data)] or [data]
    except binascii.Error:
        return [data]


def _endorsement_key(data: bytes) -> PublicKey | bytes:
    """A public area starts with the key type or with its size; both differ from the start of a SubjectPublicKeyInfo."""
    plain = _without_pem(data)
    return plain if plain.startswith(_SEQUENCE) else EndorsementKey.decode(_public_area(plain)).key


def _public_area(data: bytes) -> bytes:
    """TPMT_PUBLIC. tpm2-tools write TPM2B_PUBLIC, which has a two-byte size before it; a type never equals the size."""
    size, public = int.from_bytes(data[:_SIZE_BYTES], "big"), data[_SIZE_BYTES:]
    return public if size == len(public) else data


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("a time is of the form 2026-01-02T03:04:05Z") from None
    if at.tzinfo is None:
        raise argparse.ArgumentTypeError("a time has a zone: 2026-01-02T03:04:05Z")
    return at


def _selection(text: str) -> PCRSelection:
    try:
        return PCRSelection.parse(text)
    except InvalidPCRSelection as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _nonce(text: str) -> bytes:
    try:
        return Nonce(bytes.fromhex(text)).value
    except ValueError:
        raise argparse.ArgumentTypeError("1 to 66 bytes in hexadecimal") from None


if __name__ == "__main__":
    raise SystemExit(main())
