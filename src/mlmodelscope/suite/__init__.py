"""Suite files -> the evaluations they ask for, and which of them are done."""
