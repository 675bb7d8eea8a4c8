"""A self-hosted server of the OpenAI Responses API, run from its own OpenAPI document."""

__version__ = "0.1.0"
