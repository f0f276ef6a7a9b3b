"""`python -m worker …` is `acts …`."""

import sys

if __name__ == "__main__":
    try:
        from worker.cli import main

        code = main()
    except KeyboardInterrupt:  # while the modules load
        code = 130
    sys.exit(code)
