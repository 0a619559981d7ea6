"""Load on live servers: requests, arrivals, measurements, and SGLang's own benchmark tool."""
