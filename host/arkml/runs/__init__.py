"""The runs that the guests of a host take part in, and the hives that keep them."""
