"""What cells ask of the machine that Jupyter runs on: files, links, the network. Done by the kernel process.

Nothing here is done because a sandbox says so: the lines are those that the front end itself has sent.
"""

__all__: list[str] = []
