"""One file per schema number, in order; a file that was released never changes."""
