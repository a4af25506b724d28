"""`python -m tpugraphs` is the same as `tpugraphs`."""

from tpugraphs.cli.main import main

if __name__ == "__main__":
    main()
