"""``node-attestation-controller krl revoke``: revoke SSH keys and certificates in a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from attestors.standard_output import standard_output
from attestors.wire.ssh.key_line import MAXIMUM_FILE_BYTES, parse_key_file
from attestors.wire.ssh.krl import AnyAuthority, Authority
from signer.offline.failures import say, with_exit_code
from signer.offline.files import read_input
from signer.offline.revocation_file import Checked, Updated, update
from signer.offline.revoked import FORMS, revoked_by

_EPILOG: Final = f"Can be revoked: {FORMS}."


def add_krl(parser: argparse.ArgumentParser) -> None:
    """Complete the parser of the command."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    revoke = actions.add_parser(
        "revoke",
        help="add an entry to a key revocation list, or begin one",
        description="Replaces the file in one step, by the next version. Takes no entry away.",
        epilog=_EPILOG,
    )
    revoke.add_argument("revoked", nargs="+", metavar="SERIAL|KEY-ID|KEY", help="what shall be refused; see below")
    revoke.add_argument(
        "--file", type=Path, required=True, metavar="FILE", help="the list, which RevokedKeys of sshd_config names"
    )
    revoke.add_argument(
        "--ca",
        metavar="KEY.pub",
        help="serial numbers and key ids are those of this authority's certificates (default: of every authority's)",
    )
    revoke.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")
    revoke.set_defaults(load=lambda: with_exit_code(_revoke))


def _revoke(options: argparse.Namespace) -> int:
    authority: Authority = AnyAuthority()
    if options.ca is not None:
        authority = parse_key_file(read_input(options.ca, maximum_bytes=MAXIMUM_FILE_BYTES))
    updated = update(options.file, [revoked_by(text, authority) for text in options.revoked])
    with standard_output():
        print(_as_json(updated) if options.output == "json" else _as_text(updated))
    if updated.checked is Checked.BY_OUR_READER_ALONE:
        say("ssh-keygen is not installed here, so OpenSSH has not read the file; try it with ssh-keygen -Q -l -f FILE")
    say(
        "sshd reads the file at the next login. It refuses nothing on nodes that do not have this version, and it "
        "ends no session that is open"
    )
    return 0


def _as_text(updated: Updated) -> str:
    now = updated.revocations
    return f"{updated.file}: version {now.version}, {updated.added} added, {now.entries} entries"


def _as_json(updated: Updated) -> str:
    now = updated.revocations
    document = {
        "file": str(updated.file),
        "version": now.version,
        "added": updated.added,
        "entries": now.entries,
        "checked": updated.checked.value,
    }
    return json.dumps(document, indent=2)
