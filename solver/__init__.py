"""Pure decisions: snapshot and policy in, decision out. No clock, no I/O, no environment."""
