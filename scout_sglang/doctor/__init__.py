"""Is this install sound, do these flags work, why do prefixes break?"""
