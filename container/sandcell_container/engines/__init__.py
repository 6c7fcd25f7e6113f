"""The engines: each makes sandboxes in its own way, behind the one contract of `engine.py`."""
