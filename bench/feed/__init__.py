"""The dataplane against its peers: each in its own environment, the same samples, interleaved rounds."""
