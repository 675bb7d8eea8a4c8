"""How a conversation is put before a model: chat templates and dialects. Knows no engine."""
