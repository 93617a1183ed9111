"""`python -m dtjax`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; a bad argument is one line, not a traceback."""
    from dtjax.cli import main

    try:
        main.main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
