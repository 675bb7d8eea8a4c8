"""How a model's output is read: what comes in, what goes out, and a reader for each codec.

Readers are generators that take what is there and pause where more is needed, so each reads like a
parser of a whole text, and how the text was cut cannot matter: nothing is decided before it is
certain.
"""
