"""Looks for bodies that a server does not stand, with schemathesis."""
