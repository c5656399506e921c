"""The release of all packages of arkml, which are released together."""

RELEASE = "0.1.0"
