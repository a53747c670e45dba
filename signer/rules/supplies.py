"""Interfaces that supply the plans' stages with facts: a method for each stage, in the order of the stages.

The decision (:mod:`signer.decision.request_decision`, :mod:`signer.decision.builtin_serving`) and the replay
(:mod:`signer.audit.replay`) implement them. A step returns ``PROCEED``, or the decision, which ends the walk.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from signer.model.decision import Deferred, Refused
from signer.rules.builtin_serving import BuiltinRequestFacts, BuiltinServingFacts, StandingFacts
from signer.rules.machine import MachineFacts
from signer.rules.plan import Note, Proceed
from signer.rules.request import IdentityFacts, RequestFacts
from signer.rules.shape import ClusterFacts

Result = TypeVar("Result", covariant=True)


class RequestSupplies(Protocol[Result]):
    """For a request to one of our signers."""

    async def policy(self, note: Note) -> Proceed:
        """Read the Cluster, its policy and its attestors from the caches."""
        ...

    async def cluster_facts(self) -> ClusterFacts:
        """The Cluster."""
        ...

    async def clocks(self, note: Note) -> Proceed:
        """Compare the time of the decision with that of both API servers."""
        ...

    async def records_listed(self, note: Note) -> Proceed:
        """Wait until the Cluster's records are in the cache."""
        ...

    async def attestor(self, note: Note) -> Proceed:
        """Get the attestor's description."""
        ...

    async def read(self, note: Note) -> Proceed:
        """Refuse a request that could not be read."""
        ...

    def is_approved(self) -> bool:
        """Whether the request is approved already."""
        ...

    async def approved_before(self, note: Note) -> Proceed | Result:
        """Find out who approved the request. An approval that does not count ends the decision."""
        ...

    async def authority(self, note: Note) -> Proceed:
        """Read the cluster's CA."""
        ...

    async def request_facts(self) -> RequestFacts:
        """The request, and the facts that it is checked against."""
        ...

    async def recheck_authority(self, error: Refused | Deferred) -> None:
        """Re-read the cluster's CA if the CA that the evidence names is the only error."""
        ...

    async def trusted(self, note: Note) -> Proceed:
        """Wait until a canary has proven that the API server accepts what the cluster's CA signs."""
        ...

    async def claim(self, note: Note) -> Proceed:
        """Find the Machine with the claimed provider ID, and the facts to tell the attestor about it."""
        ...

    async def attest(self, note: Note) -> Proceed | Result:
        """Call the attestor."""
        ...

    async def identity_facts(self) -> IdentityFacts:
        """The attestor's outcome, and the request's claim."""
        ...

    async def unchanged(self, note: Note) -> Proceed:
        """Verify that Cluster and policy have not changed."""
        ...

    async def match(self, note: Note) -> Proceed:
        """Find the Machine with the proven provider ID. It may have changed while the attestor was called, which may
        take half a minute.
        """
        ...

    async def machine_facts(self) -> MachineFacts:
        """The Machine, and the records of it and of the node name."""
        ...

    async def recheck_machine(self, error: Refused | Deferred) -> None:
        """Re-read from the API server the objects on which a refusal depends."""
        ...

    async def former_machine_gone(self, note: Note) -> Proceed:
        """Verify that the Machine that had the node name before is gone."""
        ...

    async def token(self, note: Note) -> Proceed:
        """Find the owner of the bootstrap token."""
        ...

    async def former_instance_gone(self, note: Note) -> Proceed:
        """Ask the attestor whether the instance that had the node name before is gone, if its proof is needed."""
        ...

    async def reserve(self, note: Note) -> Proceed:
        """Reserve identity and Machine for each other."""
        ...

    async def reserved_facts(self) -> MachineFacts:
        """The facts of the Machine's checks, after the reservation."""
        ...

    async def recheck_record(self, error: Refused | Deferred) -> None:
        """Re-read the record from the API server."""
        ...

    async def journal(self, note: Note) -> Result:
        """Plan the certificate, sign it and write its journal entry; or find the one that was issued before."""
        ...


class BuiltinSupplies(Protocol[Result]):
    """For a kubelet's own request to the built-in serving signer."""

    async def policy(self, note: Note) -> Proceed:
        """Read the Cluster and its policy from the caches."""
        ...

    async def cluster_facts(self) -> ClusterFacts:
        """The Cluster."""
        ...

    async def clocks(self, note: Note) -> Proceed:
        """Compare the time of the decision with that of both API servers."""
        ...

    async def read(self, note: Note) -> Proceed:
        """Refuse a request that could not be read."""
        ...

    async def request_facts(self) -> BuiltinRequestFacts:
        """The request."""
        ...

    async def record(self, note: Note) -> Proceed:
        """Find the node's record and its Machine."""
        ...

    async def serving_facts(self) -> BuiltinServingFacts:
        """The attestation behind the request."""
        ...

    async def recheck_record(self, error: Refused | Deferred) -> None:
        """Re-read from the API server the objects on which a refusal depends."""
        ...

    async def standing_facts(self) -> StandingFacts:
        """Ask the attestor of the record whether it still allows the identity."""
        ...

    async def recheck_standing(self, error: Refused | Deferred) -> None:
        """Re-read the record from the API server: the node may have another identity by now."""
        ...

    async def journal(self, note: Note) -> Result:
        """Write the approval into the record, unless it is there already."""
        ...
