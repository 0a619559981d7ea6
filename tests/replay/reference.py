"""An independent model of SGLang's default cache: a radix tree with whole-leaf LRU, page size 1.

It knows nothing of the lab: calls come one after the other, each is looked up, stored, extended
by its output and left. Used to check the lab against.
"""

from __future__ import annotations

from itertools import count


class Node:
    def __init__(self, parent, tokens):
        self.parent, self.tokens, self.children, self.used = parent, tokens, {}, 0


class ReferenceLRU:
    def __init__(self, capacity):
        self.capacity = capacity
        self.clock = count(1)
        self.root = Node(None, ())
        self.size = 0

    def call(self, prompt, output):
        """Tokens of the prompt that were cached when it came."""
        path, hit = self._walk(prompt[:-1])
        self._make_room(len(prompt) - hit, path)
        path = self._store(prompt)
        decoded = output[:-1]  # the last token's KV is never computed
        if decoded:
            self._make_room(len(decoded), path)
        whole = [*prompt, *decoded]
        self._store(whole)
        self._store(prompt)
        return hit

    def _walk(self, tokens):
        """Touch, and cut at its end, the path that is stored of ``tokens``."""
        node, at, path = self.root, 0, [self.root]
        while at < len(tokens) and tokens[at] in node.children:
            child = node.children[tokens[at]]
            same = common(child.tokens, tokens[at:])
            if same < len(child.tokens):
                child = self._split(child, same)
            child.used = next(self.clock)
            at += same
            node = child
            path.append(node)
        return path, at

    def _split(self, child, at):
        upper = Node(child.parent, child.tokens[:at])
        child.parent.children[upper.tokens[0]] = upper
        child.parent, child.tokens = upper, child.tokens[at:]
        upper.children[child.tokens[0]] = child
        # SGLang refreshes both halves.
        child.used = upper.used = next(self.clock)
        return upper

    def _store(self, tokens):
        path, at = self._walk(tokens)
        if at < len(tokens):
            leaf = Node(path[-1], tuple(tokens[at:]))
            leaf.used = next(self.clock)
            path[-1].children[tokens[at]] = leaf
            self.size += len(leaf.tokens)
            path.append(leaf)
        return path

    def _make_room(self, need, locked):
        while self.capacity - self.size < need:
            victim = min(
                (n for n in self._leaves(self.root) if n not in locked), key=lambda n: n.used
            )
            del victim.parent.children[victim.tokens[0]]
            self.size -= len(victim.tokens)

    def _leaves(self, node):
        for child in node.children.values():
            if child.children:
                yield from self._leaves(child)
            else:
                yield child


def common(left, right):
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
