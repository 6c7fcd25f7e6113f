"""Git in a sandbox, run as the user: what is taken, how it is run, how its failures read."""
