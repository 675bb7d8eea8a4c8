"""Grammars that hold what is said to a form, token by token."""
