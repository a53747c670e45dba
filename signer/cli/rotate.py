"""``rotate CLUSTER …``: orders operations, and confirms rotations, after a person has agreed."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

from signer.cli.arguments import WrongUse
from signer.cli.output import print_result
from signer.cli.plain_output import print_to_stderr
from signer.cli.rotate_action import EXIT_NOT_ORDERED, EXIT_REJECTED, EXIT_WAITS, RotateFailed, run_action
from signer.cli.rotate_confirm import NoControllerKey, confirm_rotation, confirmed_as_json, what_is_confirmed
from signer.cli.rotate_order import Answer, Asked, NotOrdered, OrderAnswer, place, what_happens
from signer.kube.client import Client
from signer.kube.errors import Conflict
from signer.model.cluster import ClusterKey
from signer.rotation.confirmation import CannotBeConfirmed, NothingToConfirm, Unconfirmed
from signer.rotation.operations import UnknownGate, read_gates
from signer.rotation.view import View

_BY_ANSWER: Final[Mapping[Answer, int]] = {
    Answer.ACCEPTED: 0,
    Answer.NOT_AWAITED: 0,
    Answer.REJECTED: EXIT_REJECTED,
    Answer.NONE: EXIT_WAITS,
}
_CONFIRMED: Final = "the rotation is confirmed; `rotate … status` shows it"


def run_order(options: argparse.Namespace) -> int:
    """Order the operation that the parsed arguments name."""
    try:
        gates = read_gates(tuple(filter(None, (one.strip() for one in options.skip_gates.split(",")))))
    except UnknownGate as error:
        raise WrongUse(f"--skip-gates: {error}") from error
    _require_answer(options)
    asked = Asked(options.operation, gates)

    async def ordered(management: Client, key: ClusterKey) -> OrderAnswer:
        confirm = _agreed if options.yes else _ask_for_order
        return await place(management, key, asked, confirm=confirm, waits=not options.no_wait)

    try:
        answer = run_action(options, ordered)
    except NotOrdered as error:
        print_to_stderr(f"node-attestation-controller: {error}")
        return EXIT_NOT_ORDERED
    print_result(options.output, lambda: answer_as_json(answer), lambda console: show_answer(answer, console))
    return _BY_ANSWER[answer.answer]


def show_answer(answer: OrderAnswer, console: Console) -> None:
    """Print the answer as text."""
    console.print(Text(answer.message), soft_wrap=not console.is_terminal)


def answer_as_json(answer: OrderAnswer) -> dict[str, str]:
    """The answer as JSON. Fields are only ever added."""
    return {
        "cluster": str(answer.cluster),
        "operation": answer.operation.value,
        "answer": answer.answer.value,
        "message": answer.message,
    }


def run_confirm(options: argparse.Namespace) -> int:
    """Run ``rotate confirm`` with its parsed arguments."""
    _require_answer(options)

    def agreed(found: Unconfirmed) -> bool:
        return bool(options.yes) or _ask(what_is_confirmed(found))

    try:
        found = run_action(
            options,
            lambda management, key: confirm_rotation(
                management,
                key,
                options.controller_namespace,
                agreed,
                node_client=frozenset(options.node_client_authority),
            ),
        )
    except NotOrdered as error:
        print_to_stderr(f"node-attestation-controller: {error}")
        return EXIT_NOT_ORDERED
    except (NoControllerKey, NothingToConfirm, CannotBeConfirmed, Conflict) as error:
        raise RotateFailed(str(error)) from error
    print_result(
        options.output,
        lambda: confirmed_as_json(found),
        lambda console: console.print(_CONFIRMED),
    )
    return 0


def _require_answer(options: argparse.Namespace) -> None:
    if not options.yes and not sys.stdin.isatty():
        raise WrongUse("standard input is no terminal, so nobody can be asked: give --yes")


def _agreed(view: View, asked: Asked) -> bool:
    return True


def _ask_for_order(view: View, asked: Asked) -> bool:
    return _ask(what_happens(view, asked))


def _ask(lines: Iterable[str]) -> bool:
    """Say what will happen, and read the answer from the terminal. Standard output stays free for the result."""
    for line in lines:
        print_to_stderr(textwrap.fill(line, width=shutil.get_terminal_size().columns))
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
