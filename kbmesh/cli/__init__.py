"""The command `kbmesh`: a group of commands for each part of an installation."""

import click

from kbmesh.cli.mcp import mcp
from kbmesh.cli.spaces import spaces


@click.group()
def main() -> None:
    """Operates a kbmesh installation."""


main.add_command(mcp)
main.add_command(spaces)
