"""Models as transformers' modules. Importing what is in here imports torch."""
