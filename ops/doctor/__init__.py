"""`make doctor`: what is wrong with the stack, by the signs that known troubles leave, and what cures them."""
