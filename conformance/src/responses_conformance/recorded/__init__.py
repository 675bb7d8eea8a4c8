"""Requests of real clients: recorded, and sent again to a server under test."""
