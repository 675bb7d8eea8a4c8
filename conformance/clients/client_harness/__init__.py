"""Drives real clients against antiphon and tells what came of it."""
