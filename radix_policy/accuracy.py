"""How often the agent held to be the likeliest is the one that calls next."""

from __future__ import annotations

SAMPLED = 4
"""Every how many dispatches a prediction is judged: it costs as much as the rest of a call's
learning."""


class Accuracy:
    """``predictions`` judged since the start, ``correct`` ones among them. Both only grow."""

    def __init__(self) -> None:
        self.predictions = 0
        self.correct = 0

    def due(self, dispatch: int) -> bool:
        """Whether the prediction for this dispatch is to be judged."""
        return dispatch % SAMPLED == 0

    def judge(self, guess: int | None, agent: int) -> None:
        """``agent`` called in a session where ``guess`` was held to; None is no prediction."""
        if guess is not None:
            self.predictions += 1
            self.correct += agent == guess
