"""One application of six agents, written once, run by four agent frameworks against a server."""
