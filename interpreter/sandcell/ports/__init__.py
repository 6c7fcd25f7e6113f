"""Ports of a sandbox, seen from outside: their URLs, and the way of a request to what listens there.

The guest and the host program use the same: `exchange` passes one request and its answer on, `tunnel` is the host's way to a
port, `door` the listener of an exposure. What is served is hostile: nothing here reads more of it than heads.
"""
