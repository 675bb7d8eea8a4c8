"""What answers a turn: the engine in this process, a script, or another server."""
