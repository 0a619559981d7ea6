"""What was learned, as bytes and on disk. No prompt, no client's label, and of token ids only those
of anchors (see :mod:`radix_policy.warm_start`).

A snapshot is an ``.npz`` archive of numpy arrays and one JSON tree; nothing in it is executed.
``KEPT`` is all that leaves the process, ``LEFT`` what stays behind on purpose: the tables that
tell private prompts apart (whoever can test eight tokens at a time against them reads the text
back), the reference prompts, calls under way. Of prompts only hashes of text that three sessions
have in common are kept, of session labels and tenants a digest. Agents keep their names.

Format: member ``header``, JSON as bytes: ``format``, ``version``, ``layout`` (see
:func:`layout`), ``rule``, ``model``; member ``tree``, JSON as bytes; members ``a0``, ``a1``,
...: the arrays that the tree refers to. The archive's own checksums tell a damaged one.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import tempfile
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from radix_policy import (
    anchors,
    divergence,
    guard,
    hashing,
    horizon,
    identity,
    lines,
    live,
    reuse,
    sessions,
    signatures,
    survival,
    transitions,
    trie,
)
from radix_policy.bounds import Held
from radix_policy.cachescout import CacheScoutValue
from radix_policy.value import ScoutValue

FORMAT = "scout-state"
VERSION = 2

KEPT: dict[type, tuple[str, ...]] = {
    horizon.Horizon: ("_tokens", "_calls", "_births", "_dispatches"),
    guard.Guard: ("cap", "bucket", "forgiven", "switches", "shadow_hits", "real_hits"),
    ScoutValue: (
        "counts", "sessions", "rows", "reuse", "_refreshed", "_changed", "_outdated",
        "survival", "_gamma", "_G", "_from_start", "_lines",
    ),
    survival.Survival: ("mean_end", "q", "q_turn", "turns_ahead"),
    lines.SessionLines: ("slots", "place", "table"),
    CacheScoutValue: ("rows", "_follows", "_current", "_gap", "_now", "_refreshed", "_hops"),
    transitions.AgentRows: ("_row", "_agent"),
    transitions.Counts: (
        "size", "_room", "_follows", "_flat", "_gaps", "_ranks", "_mixture", "all_gaps",
        "longest_gap", "all_ranks", "count_ranks", "all_mixture", "turn_ends", "turn_goes",
    ),
    live.LiveSessions: (
        "by_id", "_awake", "_asleep", "_free", "_used",
        "row", "last", "turn", "listed", "count", "alive",
    ),
    live.Session: ("slot", "calls", "over", "ended"),
    reuse.ReuseRatios: ("_sums",),
    identity.Identity: (
        "_anchors", "_sessions", "_agents", "_agent_labels", "_session_labels", "_label_of",
    ),
    identity._Agent: ("label", "calls", "sessions", "divergence"),
    divergence.Divergence: ("_recent", "_session", "anchor", "first"),
    anchors.AnchorIndex: ("_trie", "_synced", "_signatures", "_points", "_next_agent"),
    trie.Trie: (),
    signatures.Signatures: ("_table", "_total"),
    hashing.HashMap: (),
    sessions.SessionLinker: (
        "_sessions", "_parent", "_next", "_prompt_trust", "_text_trust", "_key_trust",
    ),
    sessions._Session: ("last", "calls", "agents", "absorbed"),
    sessions._Trust: ("_tries", "_right"),
}  # fmt: skip

LEFT: dict[type, tuple[str, ...]] = {
    horizon.Horizon: ("capacity",),
    guard.Guard: ("shadow", "rate"),
    ScoutValue: (
        "config", "horizon", "_next", "_valued", "_busy", "_moved", "_weights", "_newborn",
        "_odds",
    ),
    survival.Survival: ("_config", "_horizon", "_counts", "_sessions"),
    CacheScoutValue: ("config", "_own_sessions", "_survival"),
    transitions.AgentRows: ("limit", "_on_reuse"),
    transitions.Counts: ("_config",),
    live.Session: ("waiting",),
    reuse.ReuseRatios: ("_prior", "_decay", "_limit", "_left"),
    identity.Identity: ("_config",),
    divergence.Divergence: ("_reference",),
    anchors.AnchorIndex: ("_windows",),
    sessions.SessionLinker: (
        "_max", "_forgotten", "_continuations", "_outputs", "_texts", "_keys", "_chains",
    ),
    sessions._Session: ("running", "reached", "prompt"),
    sessions._Trust: ("_needed",),
}  # fmt: skip

_BY_NAME = {f"{kind.__module__}.{kind.__name__}": kind for kind in KEPT}
_NAMES = {kind: name for name, kind in _BY_NAME.items()}


def layout() -> str:
    """A digest of the fields kept and of the constants that give kept numbers their meaning."""
    fields = [(name, KEPT[kind]) for name, kind in _BY_NAME.items()]
    shapes = (transitions.RANKS, transitions.GAP_BINS, transitions.TURNS)
    texts = (anchors.BOUNDARIES.tolist(), signatures._WIDTH, hashing._BASE, hashing._VALUES)
    return blake2b(repr((fields, trie._NUMBERS, shapes, texts)).encode(), digest_size=8).hexdigest()


class SnapshotError(ValueError):
    """A snapshot can't be used; the message says why. What it was meant for is unchanged."""


@contextmanager
def reading() -> Iterator[None]:
    """Whatever goes wrong while a snapshot is read makes it one that can't be used."""
    try:
        yield
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(f"not a whole state of scout ({error or type(error)})") from error


def bounded(held: Held) -> None:
    """Raise unless what a snapshot holds stays within the configuration."""
    if held.held > held.most:
        what = held.limit.removeprefix("max_")
        raise SnapshotError(f"holds {held.held} {what}, {held.limit} allows {held.most} here")


# -- bytes -----------------------------------------------------------------------------


class _Copied:
    """The kept fields of an object of the class that ``_BY_NAME`` has under ``kind``."""

    __slots__ = ("fields", "kind")

    def __init__(self, kind: str, fields: dict[str, Any]) -> None:
        self.kind = kind
        self.fields = fields


class _Copier(pickle.Pickler):
    """A copy in memory; pickle is many times faster than a copy in Python, and never written."""

    def reducer_override(self, x: Any) -> Any:
        if type(x) in KEPT:
            return _Copied, (_NAMES[type(x)], _fields(x))
        return NotImplemented


class Frozen:
    """The parts of a snapshot as they were; ``pack`` may take its time, in another thread.

    ``parts`` as for :func:`pack`. Making one is O(what was learned), some ten times less than
    packing it.
    """

    def __init__(self, parts: dict[str, Any], rule: str, model: str) -> None:
        memory = io.BytesIO()
        copier = _Copier(memory, protocol=5)
        copier.fast = True  # no cycles, and equal objects need not become one
        copier.dump(parts)
        self._parts, self._rule, self._model = memory.getvalue(), rule, model

    def pack(self) -> bytes:
        """The snapshot's bytes."""
        return pack(pickle.loads(self._parts), self._rule, self._model)


def pack(parts: dict[str, Any], rule: str, model: str) -> bytes:
    """``parts``, made of plain values, arrays and the classes in ``KEPT``, as one snapshot.

    ``rule``: the value rule that learned it. ``model``: whose token ids it is about.
    """
    arrays: list[Any] = []
    tree = _encode(parts, arrays)
    header = {"format": FORMAT, "version": VERSION, "layout": layout(), "rule": rule}
    members = {f"a{k}": array for k, array in enumerate(arrays)}
    out = io.BytesIO()
    np.savez_compressed(out, header=_text(header | {"model": model}), tree=_text(tree), **members)
    return out.getvalue()


def unpack(data: bytes, rule: str, model: str) -> dict[str, Any]:
    """The parts of a snapshot; objects among them are for :func:`fill` and :func:`build`.

    Raises:
        SnapshotError: it is damaged, not one of ours, or of another version, rule or model.
    """
    with reading(), np.load(io.BytesIO(data), allow_pickle=False) as archive:
        if "header" not in archive:
            raise SnapshotError("not a state of scout (no header)")
        _check(json.loads(archive["header"].tobytes()), rule, model)
        tree = json.loads(archive["tree"].tobytes())
        members = {name: archive[name] for name in archive.files if name[0] == "a"}
    return {name: _resolve(part, members) for name, part in tree["d"]}


def _check(header: Any, rule: str, model: str) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise SnapshotError("not a state of scout (another format)")
    version = header.get("version")
    if version != VERSION:
        raise SnapshotError(f"a state of version {version}; this scout reads version {VERSION}")
    if header.get("layout") != layout():
        raise SnapshotError("a state of another release of scout, which keeps other things")
    if header.get("rule") != rule:
        raise SnapshotError(f"learned under {header.get('rule')}, the policy here is {rule}")
    if header.get("model") != model:
        raise SnapshotError(f"learned on model {header.get('model')!r}, this one is {model!r}")


def _text(tree: Any) -> Any:
    return np.frombuffer(json.dumps(tree, separators=(",", ":")).encode(), dtype=np.uint8)


# -- objects to plain values -----------------------------------------------------------


class Saved(dict[str, Any]):
    """The fields of an object of class ``kind``, not yet an object."""

    kind: type


def _encode(x: Any, arrays: list[Any]) -> Any:
    if isinstance(x, np.ndarray):
        arrays.append(x)
        return {"a": len(arrays) - 1}
    if isinstance(x, np.generic):
        return x.item()
    if x is None or isinstance(x, bool | int | float | str):
        return int(x) if isinstance(x, int) and not isinstance(x, bool) else x
    if isinstance(x, list | deque):
        return [_encode(y, arrays) for y in x]
    if isinstance(x, tuple):
        return {"t": [_encode(y, arrays) for y in x]}
    if isinstance(x, set):
        return {"s": [_encode(y, arrays) for y in sorted(x)]}
    if isinstance(x, dict):
        return {"d": [[_encode(k, arrays), _encode(v, arrays)] for k, v in x.items()]}
    kind, kept = (x.kind, x.fields) if isinstance(x, _Copied) else (_NAMES[type(x)], _fields(x))
    return {"o": kind, "v": [[name, _encode(field, arrays)] for name, field in kept.items()]}


def _resolve(x: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(x, list):
        return [_resolve(y, arrays) for y in x]
    if not isinstance(x, dict):
        return x
    ((tag, body), *rest) = x.items()
    if tag == "a":
        return arrays[f"a{body}"]
    if tag == "t":
        return tuple(_resolve(y, arrays) for y in body)
    if tag == "s":
        return {_resolve(y, arrays) for y in body}
    if tag == "d":
        return {_resolve(k, arrays): _resolve(v, arrays) for k, v in body}
    saved = Saved(_resolve(rest[0][1], arrays))
    saved.kind = _BY_NAME[body]
    return saved


def _fields(x: Any) -> dict[str, Any]:
    fields = {name: getattr(x, name) for name in KEPT[type(x)] if hasattr(x, name)}
    if isinstance(x, trie.Trie | hashing.HashMap):
        fields |= x.save()
    return fields


def fill(x: Any, saved: Saved) -> None:
    """Give a fresh object of the same class what was saved of another one."""
    if type(x) is not saved.kind:
        raise SnapshotError(f"holds {saved.kind.__name__} in place of {type(x).__name__}")
    if isinstance(x, trie.Trie | hashing.HashMap):
        x.load(**saved)
        return
    for name in KEPT[type(x)]:
        if name in saved:
            _set(x, name, saved[name])
    if isinstance(x, ScoutValue):
        x.resume()


def _set(x: Any, name: str, new: Any) -> None:
    old = getattr(x, name, None)
    if isinstance(new, Saved) and not is_dataclass(new.kind):
        fill(old, new)
    elif isinstance(old, deque):
        old.extend(new)
    else:
        new = _build(new)
        setattr(x, name, OrderedDict(new) if isinstance(old, OrderedDict) else new)


def _build(x: Any) -> Any:
    """Records inside of containers, made anew."""
    if isinstance(x, Saved):
        if is_dataclass(x.kind):
            return x.kind(**{name: _build(y) for name, y in x.items()})
        made = x.kind()
        fill(made, x)
        return made
    if isinstance(x, dict):
        return {k: _build(v) for k, v in x.items()}
    return x


# -- files -----------------------------------------------------------------------------

TEMPORARY = "????????.tmp"
"""How the name of a file under way goes on after the name it will have and a dot (glob pattern)."""


def write(path: str | Path, data: bytes) -> None:
    """Put ``data`` at ``path`` at once or not at all, readable by its owner only.

    A crash at any moment leaves the old file or the new one, at worst beside a ``.tmp`` file.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: str | Path) -> bytes:
    """The bytes at ``path``.

    Raises:
        SnapshotError: there is no file, or it can't be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SnapshotError(f"cannot be read ({error.strerror})") from error
