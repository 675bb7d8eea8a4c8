"""Models as they lie on disk: files, folders and hubs, read without anything that runs them."""
