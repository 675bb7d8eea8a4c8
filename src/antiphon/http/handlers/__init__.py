"""The operations of the document, one class for each resource. Handlers hold no logic."""
