"""What a response is: from a request's body to a log of events. No HTTP, no SQL and no torch."""
