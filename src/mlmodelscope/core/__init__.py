"""The nouns: every type that two stages share, without I/O."""
