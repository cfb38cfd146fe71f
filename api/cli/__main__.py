"""`python -m phalanx.api.cli` is `phalanx`."""

from . import main

main()
