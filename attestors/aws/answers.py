"""Serialises answers of AWS for the audit log: the values that the rules need, without secrets."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final

from attestors.aws.caller_identity import CallerIdentity
from attestors.aws.ec2.directory import Found, NotListed
from attestors.aws.ec2.instance import Instance, InstanceState, MetadataOptions, NoRootVolume, NotAttached
from attestors.aws.ec2.trust import RoleTrust
from attestors.clouds.recorded_calls import text_of
from attestors.contract import AnswerForm


def _caller_read(written: Any) -> CallerIdentity:
    names = ("partition", "account", "role_name", "role_id", "session_name")
    return CallerIdentity(*(text_of(written[name]) for name in names))


CALLER: Final[AnswerForm[CallerIdentity]] = AnswerForm(asdict, _caller_read)

TRUST: Final[AnswerForm[RoleTrust]] = AnswerForm(
    asdict, lambda written: RoleTrust(text_of(written["role_id"]), written["ec2_only"] is True)
)


def _verified_read(written: Any) -> None:
    if written is not True:
        raise ValueError("not verified")


VERIFIED: Final[AnswerForm[None]] = AnswerForm(lambda _: True, _verified_read)
"""A verified signature: the log does not hold the signature, so a replay does not verify it again."""


def _moment_written(moment: datetime | NoRootVolume | NotAttached) -> str:
    return moment.isoformat() if isinstance(moment, datetime) else type(moment).__name__


def _moment_read(written: Any) -> datetime | NoRootVolume | NotAttached:
    others: dict[str, NoRootVolume | NotAttached] = {
        NoRootVolume.__name__: NoRootVolume(),
        NotAttached.__name__: NotAttached(),
    }
    text = text_of(written)
    return others[text] if text in others else datetime.fromisoformat(text)


def _found_written(found: Found) -> Any:
    if isinstance(found, NotListed):
        return NotListed.__name__
    return {
        "instanceID": found.instance_id,
        "account": found.account,
        "state": found.state.value,
        "privateDNSName": found.private_dns_name,
        "otherDNSNames": list(found.other_dns_names),
        "addresses": [str(address) for address in found.addresses],
        "sessionTokenRequired": found.metadata_options.session_token_required,
        "hopLimit": found.metadata_options.hop_limit,
        "interfaceAttachedAt": _moment_written(found.interface_attached_at),
        "rootAttachedAt": _moment_written(found.root_attached_at),
        "tags": dict(found.tags),
    }


def _found_read(written: Any) -> Found:
    if written == NotListed.__name__:
        return NotListed()
    interface = _moment_read(written["interfaceAttachedAt"])
    if isinstance(interface, NoRootVolume):
        raise ValueError("an interface is no volume")
    return Instance(
        instance_id=text_of(written["instanceID"]),
        account=text_of(written["account"]),
        state=InstanceState(written["state"]),
        private_dns_name=text_of(written["privateDNSName"]),
        other_dns_names=tuple(text_of(name) for name in written["otherDNSNames"]),
        addresses=tuple(ip_address(text_of(address)) for address in written["addresses"]),
        metadata_options=MetadataOptions(written["sessionTokenRequired"] is True, int(written["hopLimit"])),
        interface_attached_at=interface,
        root_attached_at=_moment_read(written["rootAttachedAt"]),
        tags={text_of(key): text_of(value) for key, value in written["tags"].items()},
    )


INSTANCE: Final[AnswerForm[Found]] = AnswerForm(_found_written, _found_read)
