"""The native kernels: fast CPU code in C++, called through a plain C interface."""
