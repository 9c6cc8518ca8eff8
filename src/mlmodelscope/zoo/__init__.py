"""The built-in model and data set manifests."""
