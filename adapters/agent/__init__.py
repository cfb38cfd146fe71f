"""The agent of one host."""
