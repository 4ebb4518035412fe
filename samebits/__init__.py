"""Does a model compute the same bits under every transformers release?"""
