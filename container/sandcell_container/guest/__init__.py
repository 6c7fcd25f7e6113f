"""The guest's work in a sandbox: what starts, runs and ends user code there, one noun a file."""
