"""Models of the Llama shape on the native kernels: which fit, their weights, and a self-test."""
