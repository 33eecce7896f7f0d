"""The garbage collector: objects go when all their owners are gone, of whatever kind either is."""
