"""The guest: the one server of a sandbox. Thin handlers over contexts, commands and files.

An engine that starts guests by forking imports PRELOAD before it forks; after a guest has entered its sandbox
nothing more can be imported.
"""

PRELOAD = ("sandcell.guest.main",)
