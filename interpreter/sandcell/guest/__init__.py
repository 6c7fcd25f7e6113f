"""The guest: the one server of a sandbox. Thin handlers over contexts, commands and files.

An engine that starts guests by forking imports PRELOAD before it forks; after a guest has entered its sandbox
nothing more can be imported. The last one imports all others: they stand for themselves because what an engine is asked for
is begun between two of them.
"""

PRELOAD = ("asyncio", "tornado.web", "sandcell.context", "sandcell.guest.app", "sandcell.guest.main")
