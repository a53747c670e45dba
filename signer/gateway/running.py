"""Runs a command of the gateway's own in a container, to its end."""

from __future__ import annotations

from signer.gateway.person import PersonAPI
from signer.gateway.resolver import RunningContainer
from signer.gateway.streams import CommandResult, Failed, Output, PodName, exec_stream


async def run_to_its_end(api: PersonAPI, container: RunningContainer, words: tuple[str, ...]) -> CommandResult:
    """How the command ended. What it writes is dropped.

    Raises:
        ApiError: the API server or the kubelet refused.
        InvalidCommand: no API call can carry this command.
        ValueError: no object can have these names.
    """
    pod = PodName(container.namespace, container.pod)
    stream = await exec_stream(api, pod, container.container, words, tty=False, stdin=False)
    try:
        async for one in stream:
            if not isinstance(one, Output):
                return one
    finally:
        await stream.close()
    return Failed("the command's stream has no end")


def is_missing_program(result: CommandResult) -> bool:
    """Whether the image has no such program, as runc and crun say it (execve(2), ENOENT)."""
    texts = ("executable file not found", "no such file or directory")
    return isinstance(result, Failed) and any(one in result.message for one in texts)


__all__ = ["is_missing_program", "run_to_its_end"]
