"""How far real engines agree with the functions of their platforms."""
