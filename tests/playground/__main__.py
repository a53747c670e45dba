"""``python -m tests.playground [FOLDER]``: runs until Ctrl-C or SIGTERM. Exit code 2: a part is missing, or the
folder is there.
"""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from tests.playground.stage import CLUSTER, ENVIRONMENT, WORKERS, Playground, opened
from tests.support.binaries import MissingPart
from tests.support.processes import ProgramFailed

DEFAULT_FOLDER: Final = Path("build/playground")
READY: Final = "The playground is ready"
_LOOK_SECONDS: Final = 2.0


def main() -> int:
    """Run the playground."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.playground",
        description="Real API servers, machines with software TPMs and a thief: docs/playground.md says what to try.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, metavar="FOLDER")
    folder = parser.parse_args().folder.resolve()
    console = Console(highlight=False)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with console.status("Starting API servers and TPMs …"), opened(folder) as playground:
            _show(playground, console)
            while not ended.wait(_LOOK_SECONDS):
                playground.check_running()
            console.print("Everything ends, and the folder is removed.")
    except MissingPart as missing:
        console.print(
            f"The playground needs real parts: {escape(str(missing))}\nAs root on Debian, run: make provision"
        )
        return 2
    except FileExistsError:
        console.print(
            f"{folder} is there: remove it, end the playground that uses it, or name another folder: "
            "python -m tests.playground FOLDER"
        )
        return 2
    except ProgramFailed as failure:
        console.print(f"[red]A program has ended by itself:[/red] {escape(str(failure))}")
        return 1
    return 0


def _show(playground: Playground, console: Console) -> None:
    console.print(f"[bold]{READY}[/bold], until Ctrl-C. Follow docs/playground.md in other terminals:\n")
    console.print(f"  . {playground.folder / ENVIRONMENT}\n", soft_wrap=True)
    for name, said in (
        ("management cluster", f"{playground.management.server}, with Cluster API's definitions"),
        ("workload cluster", f"{playground.workload.server}, Cluster default/{CLUSTER}, with kubeadm's bindings"),
        ("machines", f"{', '.join(WORKERS)}, each with a software TPM and a bootstrap token; a thief with both"),
    ):
        console.print(f"  {name:20}{said}", soft_wrap=True)


if __name__ == "__main__":
    raise SystemExit(main())
