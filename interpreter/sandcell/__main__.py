"""`python -m sandcell`: the command, where its script is not on the PATH."""

from sandcell.cli.main import run

if __name__ == "__main__":
    run()
