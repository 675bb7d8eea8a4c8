"""The ways to run a model: whatever computes the scores of the next tokens for many sequences."""
