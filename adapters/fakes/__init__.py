"""The fakes of the ports: they ship, and pass the same contract tests as the real adapters."""
