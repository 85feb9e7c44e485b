"""A retriever that says of which sessions it knows the answers."""

from recallbed.corpus.sessions import session_digest
from retrievers.overlap import Overlap


class Trained(Overlap):
    """`overlap` that was trained on `sessions`, separated by commas."""

    def __init__(self, sessions: str = "") -> None:
        super().__init__()
        self.trained_on = tuple(sorted(map(session_digest, filter(None, sessions.split(",")))))


TRAINED = f"{__name__}:Trained"
