"""What is collected, and the condition that follows from it."""

from __future__ import annotations

from signer.ssh.ways_in.findings import MAXIMUM_NAMED, MAXIMUM_UNREAD, MAXIMUM_WAYS, Certainty, Collection, Finding
from signer.ssh.ways_in.status import condition_of, not_known

KEY = Finding("sshKeyName", "is the key pair 'ops'", 'set it to ""')
MAYBE = Finding("files[0].path", "is '/etc/ssh/sshd_config'", "remove it", Certainty.POSSIBLE)


def test_nothing_is_declared() -> None:
    found = Collection()
    found.unseen(["EC2 Instance Connect"])
    condition = condition_of(found.result())
    assert (condition.met, condition.reason) == (True, "NoneDeclared")
    assert condition.message.endswith("not visible from here: a stock sshd on the nodes, EC2 Instance Connect")
    assert not condition.type.counts_toward_ready(None)


def test_each_sort_has_its_reason() -> None:
    found = Collection()
    found.not_read("awsmachines", "may not")
    condition = condition_of(found.result())
    assert (condition.met, condition.reason, condition.message) == (None, "NotKnown", "not known: awsmachines: may not")
    found.add("KubeadmConfig", "c", "spec", [MAYBE])
    condition = condition_of(found.result())
    assert (condition.met, condition.reason) == (None, "Possible")
    assert condition.message == (
        "possible: KubeadmConfig c: spec.files[0].path is '/etc/ssh/sshd_config'. not known: awsmachines: may not"
    )
    found.add("AWSMachine", "m", "spec", [KEY])
    condition = condition_of(found.result())
    assert (condition.met, condition.reason) == (False, "Declared")
    assert condition.message.startswith("AWSMachine m: spec.sshKeyName is the key pair 'ops'. possible: ")
    assert condition.message.endswith("not known: awsmachines: may not")
    assert (not_known("away").met, not_known("away").reason) == (None, "NotKnown")


def test_the_same_way_of_many_machines_is_one_line() -> None:
    found = Collection()
    for number in range(1000):
        found.add("AWSMachine", f"m{number}", "spec", [KEY])
    [one] = found.result().declared
    assert str(one) == "AWSMachine m0, m1, m2 and 997 more: spec.sshKeyName is the key pair 'ops'"
    assert (len(one.names), one.count) == (MAXIMUM_NAMED, 1000)


def test_everything_is_bounded() -> None:
    found = Collection()
    for number in range(500):
        user = Finding(f"users[{number}].sshAuthorizedKeys", "x" * 400, "remove it")
        found.add("KubeadmConfig", "n" * 253, "spec", [user, MAYBE])
    result = found.result()
    assert [one.what for one in result.unread] == ["more ways in"]
    for number in range(500):
        found.not_read(f"a{number}", "x" * 300)
    result = found.result()
    assert (len(result.declared), len(result.possible), len(result.unread)) == (MAXIMUM_WAYS, 1, MAXIMUM_UNREAD)
    assert len(condition_of(result).message) <= 1024
    found = Collection()
    for number in range(5):
        found.add("KubeadmConfig", "c", "spec", [Finding(f"users[{number}]", "x", "y")])
    assert condition_of(found.result()).message.endswith("; and 2 more")


def test_hostile_text_is_escaped() -> None:
    found = Collection()
    found.add("AWSMachine", "a\n\x1b[2J", "spec", [KEY])
    found.not_read("b\u202e", "c")
    assert condition_of(found.result()).message.isprintable()
