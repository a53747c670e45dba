"""Where ``ssh-sign`` gets the user authority: a master secret (RFC 016), or the manifest of its Secret."""

from __future__ import annotations

import argparse
from typing import Final

from attestors.net.strict_yaml import YamlRefused, load_strict_yaml
from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.derivation import (
    DEFAULT_INFO,
    MAXIMUM_MASTER_SECRET_BYTES,
    derive_user_authority,
    parse_master_secret,
    parse_salt,
)
from signer.authority.ssh.secret import user_authority_in
from signer.offline.failures import InputRefused
from signer.offline.files import read_input

_MAXIMUM_MANIFEST_BYTES: Final = 1024 * 1024
"""An object of Kubernetes is not larger."""


def add_authority(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--master-secret",
        metavar="FILE",
        help="derive the authority from this master secret, JSON with key and salt as in RFC 016; -: standard input",
    )
    source.add_argument(
        "--authority",
        metavar="FILE",
        help="use the authority in this manifest, YAML or JSON, of Secret CLUSTER-ssh-user; -: standard input",
    )
    parser.add_argument(
        "--salt", metavar="BASE64", help="with --master-secret: the cluster's salt, instead of the file's"
    )
    parser.add_argument(
        "--generation", type=int, metavar="N", help="with --master-secret: the authority's generation (default: 0)"
    )
    parser.add_argument(
        "--info",
        metavar="TEXT",
        help=f"with --master-secret: the info of the derivation (default: {DEFAULT_INFO}, as in RFC 016; released "
        "versions of Constellation use key-ca_emergency_ssh)",
    )


def authority_of(options: argparse.Namespace) -> UserAuthority:
    """The authority from the arguments of :func:`add_authority`.

    Raises:
        InputRefused: the arguments contradict each other, or a file cannot be read.
        SSHAuthorityRefused: what the file holds is no authority.
    """
    if options.master_secret is not None:
        master = parse_master_secret(read_input(options.master_secret, maximum_bytes=MAXIMUM_MASTER_SECRET_BYTES))
        if options.salt is not None:
            master = master.with_salt(parse_salt(options.salt))
        info = DEFAULT_INFO if options.info is None else options.info
        return derive_user_authority(master, info=info, generation=options.generation or 0)
    for flag in ("salt", "generation", "info"):
        if getattr(options, flag) is not None:
            raise InputRefused(f"--{flag} belongs to --master-secret: an authority in a Secret is not derived")
    try:
        manifest = load_strict_yaml(read_input(options.authority, maximum_bytes=_MAXIMUM_MANIFEST_BYTES))
    except YamlRefused as error:
        raise InputRefused(f"the manifest of --authority: {error}") from None
    return user_authority_in(manifest)
