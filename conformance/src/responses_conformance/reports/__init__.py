"""What a run came to, for people and programs."""
