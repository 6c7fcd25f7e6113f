"""What the help of each verb says behind its options: what is to be known, examples, exit codes."""

from __future__ import annotations

__all__ = [
    "CAT",
    "CP",
    "DIFF",
    "DOCTOR",
    "EDIT",
    "EXEC",
    "EXIT_CODES",
    "FOLLOW",
    "IMAGE",
    "INSTALL",
    "KILL",
    "LOGS",
    "LS",
    "OPEN",
    "OWN_FAILURE",
    "PRUNE",
    "PS",
    "RM",
    "RUN",
    "SHELL",
    "SNAPSHOTS",
    "START",
    "STOP",
    "TOP",
    "UPDATE",
]

OWN_FAILURE = 125
"""The exit code when the failure is Sandcell's and not that of the code or command; as `docker run` and `env` do."""

EXIT_CODES = f"""
exit codes: that of the code or command; 128 and the signal's number when a signal ended it; 124 when its timeout
passed; {OWN_FAILURE} when Sandcell itself could not do it (`sandcell: CODE: message (hint)` on standard error).
"""

RUN = """
What follows the file, or the code of -c, are its arguments; those that begin with - go behind --.

examples:
  sandcell run script.py
  sandcell run script.py data.csv -- --verbose
  sandcell run -c 'import platform; print(platform.node())'
  sandcell run -l js -c 'console.log([1, 2].map((n) => n * 2))'; sandcell run script.sh
  sandcell run analysis.ipynb --out done.ipynb
  sandcell run analysis.ipynb --out may.ipynb --param month=5 --on-error continue
  sandcell run --sandbox lab -c 'x = 1'; sandcell run --sandbox lab -c 'print(x)'; sandcell rm lab
"""
DIFF = """
Cells are told apart by their code; numbers of executions and times are no change.

example:
  sandcell diff analysis.ipynb done.ipynb

exit codes: 0 when all shows the same, 1 when something changed.
"""
EXEC = """
One argument is a line for the shell, several are a program and its arguments. Options of exec come before it.

examples:
  sandcell exec 'ls -l | head -3'
  sandcell exec ls -l /workspace
  tar -c . | sandcell exec --stdin --sandbox lab -- tar -x
  sandcell exec --sandbox lab --session build 'cd app && . env/bin/activate'
"""
SHELL = """
Without a command it is a shell. A sandbox with a name keeps the terminal when it is left, by ctrl-p and ctrl-q or because this
program ends: the same --id comes back to it, and sees the last of what it showed meanwhile.

examples:
  sandcell shell
  sandcell shell --sandbox lab --id work
  sandcell shell --sandbox lab htop

exit codes: that of the shell or command, as of exec; 0 when it was left; 128 and the signal's number when this program was ended.
"""
TOP = """
example:
  sandcell top --sandbox lab

MEMORY is what a process holds in memory, CPU the processor time that it has used, OWNER the id of the context, command, session,
process or terminal that it belongs to.
"""
START = """
The process goes on when this returns; it prints the id of it. One argument is a line for the shell, several are a
program and its arguments. Options of start come before it. Without a command the sandbox itself is started; a stopped
one has its files, and any other call would start it, too.

examples:
  sandcell start --sandbox lab
  sandcell start --sandbox lab --id web python3 -m http.server 8000
  sandcell logs --sandbox lab web
  sandcell kill --sandbox lab web
"""
LOGS = """
examples:
  sandcell logs --sandbox lab --tail 20 web
  sandcell logs --sandbox lab -f web | grep ERROR
"""
FOLLOW = """
^C leaves the process running.

example:
  sandcell follow --sandbox lab build && echo built
"""
KILL = """
Its whole tree gets SIGTERM and after the grace SIGKILL; with --signal, its process group gets that one signal.
A terminal is hung up, and all that runs on it ends.

examples:
  sandcell kill --sandbox lab web
  sandcell kill --sandbox lab -s HUP web
  sandcell kill --sandbox lab --all
"""
CP = """
A path in a sandbox is NAME:PATH, or :PATH with --sandbox; below /workspace unless absolute. What is copied to a folder that is
there goes into it, under its name. A local name with a colon is ./a:b.

examples:
  sandcell cp data.csv lab:
  sandcell cp lab:/workspace/plots ./plots
"""
LS = """
examples:
  sandcell ls lab:
  sandcell ls -l -R --glob '*.py' lab:src
"""
CAT = """
example:
  sandcell cat lab:/etc/os-release lab:notes.txt
"""
EDIT = """
The editor is VISUAL or EDITOR, else vi. A file that has changed in the sandbox meanwhile is not written over: what you wrote is
kept beside, and told where.

example:
  EDITOR=nano sandcell edit lab:app.py
"""
OPEN = """
Prints a URL of this machine that leads to what listens on PORT in the sandbox, and opens it in a browser. Whoever has the URL is
let in. Serves it until ^C, or the end of the sandbox.

example:
  sandcell open --sandbox lab 8000
"""
PS = """
examples:
  sandcell ps --json
  sandcell ps lab                   # the processes and terminals of the sandbox lab
"""
UPDATE = """
What is not given stays; files, environment and secrets stay in any case. Some changes take a restart, which ends what runs: from
or to a network of hosts, from or to "none" or "open", and limits where there is no control group.

examples:
  sandcell update --network pypi.org,files.pythonhosted.org lab
  sandcell update --network none --memory 2GiB lab
"""
STOP = """
Its files, environment and secrets stay; what runs in it ends.

example:
  sandcell stop lab; sandcell exec --sandbox lab ls
"""
RM = """
example:
  sandcell rm lab
"""
SNAPSHOTS = """
A program makes them: sandbox.snapshot(name); Sandbox.create(name) begins with a copy of one.

examples:
  sandcell snapshots
  sandcell snapshots --rm monday
"""
PRUNE = """
Every command cleans up what it comes across; this one looks at all there is, and tells. What was made of packages for sandboxes
and is of no use any more is removed.

examples:
  sandcell prune
  sandcell prune --unused-for 0
"""
INSTALL = """
examples:
  sandcell kernel install --sys-prefix      # for the Jupyter in this environment
  sandcell kernel install --user            # for every Jupyter of this user
  sandcell kernel install --language all    # JavaScript, TypeScript, bash and R, too
  sandcell kernel install --name data --memory 4GiB --package polars
"""
IMAGE = """
The engines docker and podman make sandboxes from it. It is made of this installation of Sandcell; the daemon's network and
a package index are needed for that, and not afterwards.

examples:
  sandcell image build
  sandcell image build --target full
  sandcell image build --base python:3.12-slim-bookworm --tag sandcell-lab --packages scikit-learn --apt graphviz
"""
DOCTOR = """
examples:
  sandcell doctor
  sandcell doctor --check local

exit codes: 0 when some engine isolates here, 1 when none does; with --check, 1 when a check fails.
"""
