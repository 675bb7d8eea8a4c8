"""Finds out where a server differs from the OpenAI Responses API, and which clients that breaks."""

__version__ = "0.1.0"
