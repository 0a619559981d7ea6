"""The cache policy: who is calling, what runs next, what a cached prefix is worth."""
