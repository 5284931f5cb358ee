"""`python -m rkcosim`: the same as `rkcosim`."""

from rkcosim.cli.main import main

if __name__ == "__main__":
    main()
