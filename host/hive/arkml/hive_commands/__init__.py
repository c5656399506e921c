"""The commands `arkml hive` and `arkml report`."""
