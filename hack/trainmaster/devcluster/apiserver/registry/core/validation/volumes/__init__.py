"""The rules of volumes, by what they are made of."""
