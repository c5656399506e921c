"""`python -m arkml`: the command line."""

from arkml.cli import main

if __name__ == "__main__":
    main()
