"""The rules that hold for every stream and every body, and what judges by them."""
