"""``python -m tests.releases record VERSION``: records the present version's set; one that is there stays."""

from __future__ import annotations

import re
import sys

from tests.releases.recorder import record
from tests.releases.recording import FOLDER

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "record" or not re.fullmatch(r"\d+\.\d+\.\d+", sys.argv[2]):
        sys.exit("usage: python -m tests.releases record VERSION")
    try:
        record(FOLDER / sys.argv[2])
    except FileExistsError as error:
        sys.exit(str(error))
    print(FOLDER / sys.argv[2])
