"""python -m numapilot.scripts SCRIPT TRACE [OBJECT]: prints a script's table as CSV."""

import sys
from io import TextIOWrapper

from numapilot import Error

from .table import SCRIPTS, script, write


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in SCRIPTS:
        print(f"usage: python -m numapilot.scripts {'|'.join(SCRIPTS)} TRACE [S3|17 with pattern]", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    try:
        write(script(arguments[0]), arguments[1:], sys.stdout)
    except (Error, ValueError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
