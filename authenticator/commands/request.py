"""``request``: make a request now, or show it."""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cryptography import x509

from attestors.standard_output import standard_output
from attestors.wire import request as request_format
from attestors.wire.names import (
    ATTESTATION_DATA_LABEL,
    ATTESTATION_PROVIDER_LABEL,
    CERTIFICATE_REQUEST_LABEL,
    Purpose,
)
from attestors.wire.ssh_host_keys import decode as decode_host_keys
from authenticator.commands.arguments import (
    add_common,
    add_kubeconfig,
    add_serving,
    configuration_of,
    report,
    wants_serving,
)
from authenticator.configuration import Configuration, Serving
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig, read_bootstrap_kubeconfig
from authenticator.flow.bounded import bounded, longest
from authenticator.flow.certificates import NodeCertificates
from authenticator.flow.clock import Clock
from authenticator.flow.evidence import Attestation, signing_request
from authenticator.flow.host_certificates import HostCertificates
from authenticator.flow.own_addresses import own_addresses, serving_names
from authenticator.flow.pauses import end_pauses
from authenticator.flow.serving_pair import require_serving
from authenticator.model.attempt import PendingRequest, Subject
from authenticator.model.certificate import new_key
from authenticator.model.chain import name_of
from authenticator.model.cluster import Cluster
from authenticator.model.failures import ExitCode, NoCredential, NoEvidence
from authenticator.store.store import Store

if TYPE_CHECKING:
    from authenticator.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "request",
        help="request a certificate now, or show the request",
        description="Requests the node's certificate if there is none or it is due, and stores it. With --now: even "
        "if it was refused recently. With --dry-run: makes a key and a request that are neither stored nor sent, "
        "and prints the request decoded. Exit code 12 if the stored certificate stays and is for another node name, "
        "provider ID, signer or cluster than is configured.",
    )
    add_common(command)
    add_kubeconfig(command)
    add_serving(command, "request the serving certificate")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--now", action="store_true", help="end the pause after a refusal, once its cause is fixed")
    how.add_argument("--dry-run", action="store_true", help="print the request, decoded, and send nothing")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Request once, or show the request.

    Raises:
        Failure: it fails.
    """
    configuration = configuration_of(options)
    store = Store(configuration.store)
    if options.dry_run:
        purpose = Purpose.SERVING if wants_serving(options) else Purpose.CLIENT
        lines = describe(_dry_run(configuration, store, purpose), purpose)
        with standard_output():
            print("\n".join(lines))
        return ExitCode.DONE
    if options.now:
        end_pauses(store, timeout=configuration.timeout)
    certificates = NodeCertificates(configuration, store, Clock(), report)
    with bounded(longest(exchanges=2, timeout=configuration.timeout)):
        certificates.client(timeout=configuration.timeout)
        if wants_serving(options):
            certificates.serving()
    if differing := certificates.mismatches():
        for mismatch in differing:
            report(str(mismatch))
        report(
            f"the certificate in {configuration.store} stays, because it is valid: give the right folder with --store, "
            "or correct the configuration. If both are right, wait for the renewal: `status` shows the next step"
        )
        return ExitCode.MISMATCH
    report(f"the certificates are in {configuration.store}; `status` shows them")
    return ExitCode.DONE


def _dry_run(configuration: Configuration, store: Store, purpose: Purpose) -> PendingRequest:
    attestation = Attestation.of(configuration)
    versions = attestation.versions()
    if not versions:
        raise NoEvidence(f"attestor {configuration.provider} writes no known evidence version: upgrade")
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    if purpose is Purpose.SERVING:
        require_serving(attestation)
        names = serving_names(configuration.serving or Serving(), configuration.node_name, own_addresses)
    subject = Subject(
        configuration.provider,
        configuration.node_name,
        attestation.provider_id(),
        _cluster(configuration, store).ca_cert_hash.text,
        *names,
    )
    key = new_key()
    further: Sequence[x509.UnrecognizedExtension] = ()
    if purpose is Purpose.CLIENT:
        further = HostCertificates(configuration, store, Clock(), report).extensions(key)
    return attestation.pending_request(
        subject, key, purpose=purpose, evidence_version=versions[-1], tried=(), challenge="", further=further
    )


def _cluster(configuration: Configuration, store: Store) -> Cluster:
    """The cluster of the request; evidence names it."""
    supplied = read_bootstrap_kubeconfig(configuration.bootstrap_kubeconfig) or store.bootstrap()
    if supplied is not None:
        return supplied.cluster
    own = cluster_of_own_kubeconfig(configuration.kubeconfig)
    if own is not None:
        return own
    known = store.known_cluster()
    if known is None:
        raise NoCredential(
            f"evidence names the cluster by its CA, and neither {configuration.bootstrap_kubeconfig} nor "
            f"{configuration.kubeconfig} nor the store {configuration.store} names it"
        )
    return known.cluster


def _unknown_extensions(csr: x509.CertificateSigningRequest) -> list[x509.UnrecognizedExtension]:
    """The extensions that the library does not know: the provider ID, and perhaps host keys behind it."""
    return [one.value for one in csr.extensions if isinstance(one.value, x509.UnrecognizedExtension)]


def _host_key_line(extension: x509.UnrecognizedExtension) -> str:
    keys = ", ".join(claim.key.fingerprint for claim in decode_host_keys(extension.value).keys)
    return f"  host keys    {keys} (extension {extension.oid.dotted_string})"


def describe(pending: PendingRequest, purpose: Purpose) -> list[str]:
    """The request and its blocks, for a person."""
    sent = signing_request(pending, purpose)
    blocks = request_format.decode(base64.b64decode(pending.request))
    csr = x509.load_der_x509_csr(blocks.certificate_request)
    provider_id, *host_keys = _unknown_extensions(csr)
    lines = [
        "CertificateSigningRequest (not sent; a real one has another key, and so another name)",
        f"  name         {pending.name}",
        f"  signer name  {sent['spec']['signerName']}",
        f"  usages       {', '.join(sent['spec']['usages'])}",
        f"block {CERTIFICATE_REQUEST_LABEL} ({len(blocks.certificate_request)} bytes)",
        f"  subject      {name_of(csr).rfc4514_string()}",
        f"  provider ID  {pending.subject.provider_id} (extension {provider_id.oid.dotted_string})",
        *map(_host_key_line, host_keys),
    ]
    for label, values in (("DNS names", pending.subject.dns_names), ("addresses", pending.subject.ip_addresses)):
        if values:
            lines.append(f"  {label:<12} {', '.join(values)}")
    lines += [
        f"block {ATTESTATION_PROVIDER_LABEL}",
        f"  {blocks.provider}",
        f"block {ATTESTATION_DATA_LABEL} ({len(blocks.evidence)} bytes)",
    ]
    document = json.loads(blocks.evidence)
    width = max(len(key) for key in document)
    return lines + [f"  {key:<{width}}  {value}" for key, value in document.items()]
