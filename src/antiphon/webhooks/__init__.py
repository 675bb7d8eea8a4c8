"""Tells a server of the user's own that a background response has ended."""
