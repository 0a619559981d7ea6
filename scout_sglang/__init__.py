"""Everything that touches SGLang."""

import os

__version__ = "0.1.0"

# Numpy reads it when it loads, here or in the ranks that the launcher starts. The chain is inverted
# on the scheduler's thread, where more threads of BLAS than one wait for each other under load.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
