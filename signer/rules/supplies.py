"""What the plans are walked with: a method for each stage, in the order of the stages.

Each is implemented by the decision (:mod:`signer.decision.request_decision`, :mod:`signer.decision.builtin_serving`)
and by the replay (:mod:`signer.audit.replay`). A step returns ``PROCEED``, or the decision, which ends it.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from signer.model.decision import Deferred, Refused
from signer.rules.builtin_serving import BuiltinRequestFacts, BuiltinServingFacts
from signer.rules.machine import MachineFacts
from signer.rules.plan import Note, Proceed
from signer.rules.request import IdentityFacts, RequestFacts
from signer.rules.shape import ClusterFacts

Result = TypeVar("Result", covariant=True)


class RequestSupplies(Protocol[Result]):
    """For a request to one of our signers."""

    async def policy(self, note: Note) -> Proceed:
        """Take the Cluster, its policy and its attestors as they are now."""
        ...

    async def cluster_facts(self) -> ClusterFacts:
        """The Cluster."""
        ...

    async def records_listed(self, note: Note) -> Proceed:
        """Wait until the Cluster's records are in the cache."""
        ...

    async def attestor(self, note: Note) -> Proceed:
        """Find what the attestor says of itself."""
        ...

    async def read(self, note: Note) -> Proceed:
        """Refuse what could not be read."""
        ...

    def is_approved(self) -> bool:
        """Whether the request has its approval already."""
        ...

    async def approved_before(self, note: Note) -> Proceed | Result:
        """Find who approved it, and its certificate where that was us."""
        ...

    async def authority(self, note: Note) -> Proceed:
        """Read the cluster's CA."""
        ...

    async def request_facts(self) -> RequestFacts:
        """The request, and what it is judged by."""
        ...

    async def recheck_authority(self, error: Refused | Deferred) -> None:
        """Where only the CA that the evidence names is wrong: have the CA read anew."""
        ...

    async def claim(self, note: Note) -> Proceed:
        """Find the Machine of the claimed provider ID, and what the attestor is told of it."""
        ...

    async def attest(self, note: Note) -> Proceed | Result:
        """Ask the attestor."""
        ...

    async def identity_facts(self) -> IdentityFacts:
        """What the attestor answered, and what the request claims."""
        ...

    async def unchanged(self, note: Note) -> Proceed:
        """Look whether Cluster and policy are as they were."""
        ...

    async def match(self, note: Note) -> Proceed:
        """Find the Machine of the proven provider ID: the attestor may have taken half a minute, and it may have
        changed.
        """
        ...

    async def machine_facts(self) -> MachineFacts:
        """The Machine, and what is recorded of it and of the node name."""
        ...

    async def recheck_machine(self, error: Refused | Deferred) -> None:
        """Look at what a refusal rests upon in the API server itself."""
        ...

    async def former_machine_gone(self, note: Note) -> Proceed:
        """Make sure that the Machine is gone whose name this one takes."""
        ...

    async def token(self, note: Note) -> Proceed:
        """Find whose the bootstrap token is."""
        ...

    async def reserve(self, note: Note) -> Proceed:
        """Reserve identity and Machine for each other."""
        ...

    async def reserved_facts(self) -> MachineFacts:
        """The same facts, now that the reservations say whose the Machine is."""
        ...

    async def recheck_record(self, error: Refused | Deferred) -> None:
        """Look at the record in the API server itself."""
        ...

    async def journal(self, note: Note) -> Result:
        """Plan the certificate, sign it and write its journal entry; or find the one that was made before."""
        ...


class BuiltinSupplies(Protocol[Result]):
    """For a kubelet's own request to the built-in serving signer."""

    async def policy(self, note: Note) -> Proceed:
        """Take the Cluster and its policy as they are now."""
        ...

    async def cluster_facts(self) -> ClusterFacts:
        """The Cluster."""
        ...

    async def read(self, note: Note) -> Proceed:
        """Refuse what could not be read."""
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
        """Look at what a refusal rests upon in the API server itself."""
        ...

    async def journal(self, note: Note) -> Result:
        """Write the approval into the record, unless it is there."""
        ...
