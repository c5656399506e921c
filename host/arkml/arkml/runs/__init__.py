"""The runs in which the guests of a host take part, and the hives that keep them."""
