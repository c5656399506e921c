"""The commands `arkml trials …`."""
