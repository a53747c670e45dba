"""``python -m tests.mutation [part of a path ...]``: exit code 1 if a change goes unnoticed that is not listed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

# Loaded before forking, so that no process loads them again; they do not import what is changed.
import cryptography.x509
import hypothesis
import msgspec

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.runner import TestsFailUnchanged, survivors

TARGETS: Final = (
    "signer/rules/checks.py",
    "signer/rules/plan.py",
    "signer/rules/request.py",
    "signer/rules/shape.py",
    "signer/rules/machine.py",
    "signer/rules/node_name.py",
    "signer/rules/serving.py",
    "signer/rules/bootstrap_token.py",
    "signer/rules/claim.py",
    "signer/rules/auto_approval.py",
    "signer/rules/builtin_serving.py",
    "signer/rules/leadership.py",
    "signer/rules/sharding.py",
    "signer/model/addresses.py",
    "signer/model/possible_addresses.py",
    "signer/model/service_networks.py",
    "signer/model/serving_networks.py",
    "signer/model/record.py",
    "signer/model/certificate_request.py",
    "signer/model/certificates_in_use.py",
    "signer/model/signing_request.py",
    "signer/model/cluster.py",
    "signer/model/decision.py",
    "signer/model/fields.py",
    "signer/model/record_object.py",
    "signer/model/lease.py",
    "signer/model/shard.py",
    "signer/model/policy.py",
    "signer/model/reservation.py",
    "signer/model/seal.py",
    "signer/kube/http/messages.py",
    "signer/store/authentic_records.py",
    "signer/store/controller_key.py",
    "signer/store/restore_binding.py",
    "signer/store/machine_index.py",
    "signer/store/records.py",
    "signer/store/reservations.py",
    "signer/store/removed_bindings.py",
    "signer/store/token_tracing.py",
    "signer/audit/chain.py",
    "signer/audit/comparison.py",
    "signer/audit/consistency.py",
    "signer/audit/issued.py",
    "authenticator/model/answer.py",
    "authenticator/model/attempt.py",
    "authenticator/model/certificate.py",
    "authenticator/model/chain.py",
    "authenticator/model/cluster.py",
    "authenticator/model/exec_credential.py",
    "authenticator/model/kubeconfig.py",
    "authenticator/model/pair.py",
    "authenticator/model/plan.py",
    "node_access/principals.py",
    "node_access/requests.py",
    "node_access/rules.py",
    "node_access/terminals.py",
    "node_access/values.py",
    "attestors/verdict.py",
    "attestors/wire/binding.py",
    "attestors/wire/evidence.py",
    "attestors/wire/names.py",
    "attestors/wire/pem.py",
    "attestors/wire/provider_id.py",
    "attestors/wire/request.py",
    "attestors/tpm/attestation_key.py",
    "attestors/tpm/challenge.py",
    "attestors/tpm/constants.py",
    "attestors/tpm/controller.py",
    "attestors/tpm/credential.py",
    "attestors/tpm/recorded_calls.py",
    "attestors/tpm/operator_files.py",
    "attestors/tpm/presented_keys.py",
    "attestors/tpm/quote.py",
    "attestors/tpm/reader.py",
    "attestors/tpm/selection.py",
    "attestors/tpm/settings.py",
    "attestors/tpm/shielded_vm.py",
    "attestors/tpm/source_settings.py",
    "attestors/tpm/statement.py",
    "attestors/tpm/structures.py",
    "attestors/tpm/trust.py",
    "attestors/tpm/wire.py",
    "attestors/tpm/endorsement/authorities.py",
    "attestors/tpm/endorsement/certificate.py",
    "attestors/tpm/endorsement/chain.py",
    "attestors/tpm/endorsement/der.py",
    "attestors/tpm/endorsement/extensions.py",
    "attestors/tpm/endorsement/names.py",
    "attestors/tpm/endorsement/public_keys.py",
    "attestors/tpm/endorsement/signatures.py",
    "attestors/tpm/endorsement/verification.py",
    "attestors/tpm/endorsement_key_sources/annotation.py",
    "attestors/tpm/endorsement_key_sources/answer.py",
    "attestors/tpm/endorsement_key_sources/fingerprint.py",
    "attestors/tpm/endorsement_key_sources/gcp_shielded_vm.py",
    "attestors/tpm/endorsement_key_sources/infrastructure_annotation.py",
    "attestors/tpm/endorsement_key_sources/inventory.py",
    "attestors/tpm/endorsement_key_sources/listing.py",
    "attestors/tpm/endorsement_key_sources/machine_annotation.py",
    "attestors/tpm/endorsement_key_sources/recorded_calls.py",
    "attestors/tpm/endorsement_key_sources/order.py",
    "attestors/tpm/endorsement_key_sources/trust_on_first_use.py",
)
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")


def main(arguments: list[str]) -> int:
    """Run it."""
    os.chdir(Path(__file__).parents[2])
    started = time.monotonic()
    hypothesis.settings.register_profile("mutation", derandomize=True, database=None, max_examples=20, deadline=None)
    hypothesis.settings.load_profile("mutation")
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of the path of a module; without any, all modules")
    parser.add_argument("--processes", type=int, default=max(2, os.cpu_count() or 2), help="mutants at a time")
    options = parser.parse_args(arguments)
    wanted = [target for target in TARGETS if not options.parts or any(part in target for part in options.parts)]
    mutants = [mutant for target in wanted for mutant in mutants_of(Path(target))]
    listed = equivalent()

    def tell(mutant: Mutant) -> None:
        if mutant.key not in listed:
            print(f"{mutant.key}\n{mutant.diff}\n", flush=True)

    try:
        found = survivors(mutants, options.processes, tell)
    except TestsFailUnchanged:
        print("the tests fail without any change", file=sys.stderr)
        return 2
    unlisted = [mutant for mutant in found if mutant.key not in listed]
    stale = set(listed) - {mutant.key for mutant in found} if not options.parts else set()
    for key in sorted(stale):
        print(f"listed in {_EQUIVALENT.name} and noticed or gone: {key}")
    seconds = time.monotonic() - started
    print(
        f"{len(mutants)} mutants, {len(mutants) - len(found)} noticed, {len(unlisted)} unnoticed, "
        f"{len(found) - len(unlisted)} listed as equivalent, {seconds:.0f} s"
    )
    return 1 if unlisted or stale else 0


def equivalent() -> dict[str, str]:
    """The mutants that change nothing anybody could see, and why: two lines each, the reason indented."""
    listed: dict[str, str] = {}
    key = ""
    for line in _EQUIVALENT.read_text("utf-8").splitlines():
        if line.startswith("    "):
            listed[key] = line.strip()
        elif line and not line.startswith("#"):
            key = line
    return listed


def _unused(*_: object) -> None:
    """Names the modules above."""


_unused(cryptography.x509, msgspec, Mutant)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
