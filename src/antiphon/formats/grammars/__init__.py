"""What a model may say in a turn, as a grammar in llguidance's Lark."""
