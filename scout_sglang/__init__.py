"""Everything that touches SGLang."""

__version__ = "0.1.0"
