"""Messages between Python and a player, generated from the `.proto` files in this folder."""
