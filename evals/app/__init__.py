"""The application that the demo drives: six agents who look after a ferry booking service."""
