"""The domain: what exists, what is asked, what was decided. Frozen dataclasses over the standard library only."""
