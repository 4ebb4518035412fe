"""What users change of a loaded model before they use it: its vocabulary, its labels, its dtype, a copy of it."""
