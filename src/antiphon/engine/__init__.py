"""The torch engine: tokens in, tokens out. Knows nothing of the Responses API."""
