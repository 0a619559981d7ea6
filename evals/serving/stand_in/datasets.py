"""Stands in for the `datasets` package where it is not installed.

SGLang's benchmark tool imports it on start, for image workloads alone.
"""


def load_dataset(*args: object, **kwargs: object) -> None:
    """Says what is missing."""
    raise ModuleNotFoundError("this workload needs the package: pip install datasets")
