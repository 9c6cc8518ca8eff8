"""The contract suites that every plug-in passes, ours and yours."""
