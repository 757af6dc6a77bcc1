"""The schemas of the custom resources, made from the models."""
