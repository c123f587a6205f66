"""`python -m penstock` is the command `penstock`: docs/cli.md."""

import sys

from ._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
