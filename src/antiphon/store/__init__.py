"""What outlives a request: responses, their items and events, conversations. SQL and blobs."""
