"""Runs the command as `python -m responses_conformance`."""

from responses_conformance.cli import main

main()
