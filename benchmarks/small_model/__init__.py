"""A small real model behind the product: how the product reacts to wrong answers."""
