"""How families of models spell reasoning and calls: one row each, and which row a template's is."""
