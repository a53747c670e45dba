"""``node-attestation-controller ssh-sign``: sign a user's SSH certificate, or log in with one."""

from __future__ import annotations

import argparse
import getpass
import re
import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from attestors.standard_output import standard_output
from attestors.wire.ssh.certificate import FOREVER, NONCE_BYTES, SignedCertificate
from attestors.wire.ssh.key_line import MAXIMUM_FILE_BYTES, key_line, parse_key_file
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.options import CriticalOption, Extension, ForceCommand, SourceAddress, parse_network
from attestors.wire.ssh.principals import UserPrincipal, parse_user_principal
from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.requests import MAXIMUM_USER_LIFETIME, AnyClock, Nonce, Serial, UserCertificateRequest
from signer.offline.authority_source import add_authority, authority_of
from signer.offline.failures import InputRefused, say, with_exit_code
from signer.offline.files import STANDARD_INPUT, read_input
from signer.offline.login import TemporaryKey, run_ssh

CA: Final = "ca"
_DEFAULT_PRINCIPAL: Final = "root"
_SIGN_LIFETIME: Final = MAXIMUM_USER_LIFETIME
_LOGIN_LIFETIME: Final = timedelta(minutes=5)
_PERMISSIONS: Final = {"pty": Extension.PERMIT_PTY, "port-forwarding": Extension.PERMIT_PORT_FORWARDING}
_NO_PERMISSIONS: Final = "none"
_DURATION: Final = re.compile(r"(?=.)(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?", re.ASCII)
_DESCRIPTION: Final = (
    "Signs the certificate of a user's SSH key, and prints it. Asks no API server. KEY.pub is a public key of "
    f"ssh-keygen; `{CA}` in its place prints the authority's public key, which nodes trust."
)


def add_ssh_sign(parser: argparse.ArgumentParser) -> None:
    """Complete the parser of the command."""
    parser.description = _DESCRIPTION
    parser.add_argument("key", nargs="?", metavar=f"KEY.pub|{CA}", help=f"public key, or `{CA}`; none with --exec")
    add_authority(parser)
    parser.add_argument(
        "--principal",
        action="append",
        metavar="LOGIN[@NODE|@*]",
        help="for whom the certificate counts; repeat it for more (default: root)",
    )
    parser.add_argument(
        "--validity", type=duration, metavar="DURATION", help="at most 1h (default: 1h; with --exec: 5m)"
    )
    parser.add_argument(
        "--any-clock",
        action="store_true",
        help="log in to a node whose clock is wrong: the certificate never ends, and its key is destroyed afterwards; "
        "with --master-secret, --exec and one --principal alone",
    )
    parser.add_argument("--key-id", metavar="TEXT", help="what sshd logs (default: ssh-sign/ and your login here)")
    parser.add_argument(
        "--source-address",
        action="append",
        default=[],
        metavar="NETWORK",
        help="the certificate counts only from this network, as the node sees it; repeat it for more",
    )
    parser.add_argument("--force-command", metavar="COMMAND", help="the node runs this command, and no other")
    parser.add_argument(
        "--permit",
        type=permissions,
        default=",".join(_PERMISSIONS),
        metavar="NAME,...",
        help=f"pty, port-forwarding, or {_NO_PERMISSIONS} (default: both, as in RFC 016)",
    )
    parser.add_argument(
        "--exec",
        nargs=argparse.REMAINDER,
        metavar=("HOST", "ARGUMENT"),
        help="log in with a temporary key: all that follows goes to ssh, whose exit code this command returns",
    )
    parser.set_defaults(load=lambda: with_exit_code(_run))


def duration(text: str) -> timedelta:
    """The argparse type of a duration such as ``1h``, ``30m`` or ``1m30s``."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError("a duration is a number and a unit, such as 1h, 30m or 1m30s")
    hours, minutes, seconds = (int(number or 0) for number in found.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def permissions(text: str) -> tuple[Extension, ...]:
    """The argparse type of ``--permit``."""
    names = [] if text == _NO_PERMISSIONS else text.split(",")
    if not set(names) <= _PERMISSIONS.keys():
        raise argparse.ArgumentTypeError(f"name pty, port-forwarding, both with a comma, or {_NO_PERMISSIONS}")
    return tuple(sorted({_PERMISSIONS[name] for name in names}, key=lambda extension: extension.value))


def _run(options: argparse.Namespace) -> int:
    if (options.key is None) != (options.exec is not None):
        raise InputRefused(f"give either KEY.pub, or `{CA}`, or --exec HOST")
    if [options.master_secret, options.authority, options.key].count(STANDARD_INPUT) > 1:
        raise InputRefused("standard input holds either the authority or the key: give one of them as a file")
    if options.any_clock:
        _require_emergency(options)
    authority = authority_of(options)
    if options.key == CA:
        _print(key_line(authority.public_key))
        return 0
    if options.exec is not None:
        return _log_in(authority, options)
    key = parse_key_file(read_input(options.key, maximum_bytes=MAXIMUM_FILE_BYTES))
    signed = _sign(authority, key, options, _SIGN_LIFETIME)
    _print(signed.line)
    _warn(signed)
    return 0


def _require_emergency(options: argparse.Namespace) -> None:
    """The bounds of a certificate that never ends: an authority that is offline, and a key that does not stay."""
    if options.master_secret is None:
        raise InputRefused(
            "--any-clock belongs to --master-secret: the cluster's own authority is none for emergencies"
        )
    if options.exec is None:
        raise InputRefused("--any-clock belongs to --exec: a key that stays would open nodes for ever")
    if options.validity is not None:
        raise InputRefused(
            "--any-clock takes no --validity: a node whose clock is wrong would count it from another time"
        )
    if len(options.principal or []) != 1:
        raise InputRefused("--any-clock needs exactly one --principal, such as root@worker-1")


def _log_in(authority: UserAuthority, options: argparse.Namespace) -> int:
    if not options.exec:
        raise InputRefused("--exec needs a HOST")
    with TemporaryKey() as key:
        signed = _sign(authority, key.public_key, options, _LOGIN_LIFETIME)
        _warn(signed)
        consumed = STANDARD_INPUT in (options.master_secret, options.authority)
        return run_ssh(key, signed, _principals(options)[0].login, options.exec, input_is_consumed=consumed)


def _sign(
    authority: UserAuthority, key: PublicKey, options: argparse.Namespace, default: timedelta
) -> SignedCertificate:
    request = UserCertificateRequest(
        public_key=key,
        key_id=_key_id(options.key_id),
        principals=_principals(options),
        serial=Serial.from_random(secrets.token_bytes(8)),
        nonce=Nonce(secrets.token_bytes(NONCE_BYTES)),
        now=int(time.time()),
        lifetime=_lifetime(options, default),
        critical_options=tuple(_critical_options(options)),
        extensions=options.permit,
    )
    return authority.sign(request)


def _lifetime(options: argparse.Namespace, default: timedelta) -> timedelta | AnyClock:
    if options.any_clock:
        return AnyClock()
    validity: timedelta | None = options.validity
    return default if validity is None else validity


def _principals(options: argparse.Namespace) -> tuple[UserPrincipal, ...]:
    """At least one; the login of the first one is that of ``--exec``."""
    return tuple(map(parse_user_principal, options.principal or [_DEFAULT_PRINCIPAL]))


def _critical_options(options: argparse.Namespace) -> list[CriticalOption]:
    found: list[CriticalOption] = []
    if options.force_command is not None:
        found.append(ForceCommand(options.force_command))
    if options.source_address:
        found.append(SourceAddress(tuple(map(parse_network, options.source_address))))
    return found


def _key_id(text: str | None) -> KeyID:
    if text is not None:
        return KeyID(tuple(text.split("/")))
    try:
        login = getpass.getuser()
    except (KeyError, OSError):  # before Python 3.13, KeyError: this user has no entry in /etc/passwd
        login = "unknown"
    return KeyID.of("ssh-sign", login)


def _print(line: str) -> None:
    with standard_output():
        print(line)


def _warn(signed: SignedCertificate) -> None:
    """What the certificate opens, and what takes it back."""
    certificate = signed.certificate
    names = ", ".join(map(str, certificate.principals))
    named = f"certificate {certificate.serial}, key id {certificate.key_id}"
    if certificate.valid_before == FOREVER:
        say(f"{named}, for {names}, WITHOUT END, whatever a node's clock says")
        say(
            "its key is temporary, and destroyed when ssh ends. Should this program be killed before, revoke the "
            "certificate on every node; set the node's clock, and log in without --any-clock from then on"
        )
    else:
        end = datetime.fromtimestamp(certificate.valid_before, UTC)
        say(f"{named}, for {names}, until {end:%Y-%m-%d %H:%M:%S} UTC")
    say(
        f"it counts on every node that trusts {certificate.authority.fingerprint}. Without the API server, no command "
        "takes it back from all of them; where you reach a node's RevokedKeys file, add it with: "
        f"node-attestation-controller krl revoke {certificate.serial} --file FILE"
    )
    say("a session that it opened does not end with it, unless the node ends sessions itself")
