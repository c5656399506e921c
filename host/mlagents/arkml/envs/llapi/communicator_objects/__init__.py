"""The messages between Python and a player, generated from the `.proto` files beside them."""
