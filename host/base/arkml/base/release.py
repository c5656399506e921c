"""The release number of arkml's packages, which are all released together."""

RELEASE = "0.1.0"
