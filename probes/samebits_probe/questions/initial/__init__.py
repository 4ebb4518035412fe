"""The first weights of a new model: made of the config alone, and of a head that the checkpoint lacks."""
