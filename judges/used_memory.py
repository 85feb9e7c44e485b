"""Task 3: whether an answer used the memory that was selected for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from judges.prompt import YesOrNo, is_yes, read_prompt
from judges.verdicts import Judged, Verdict
from judges.voting import Ballot, JudgeQuestion, ask_judge, majority
from recallbed.chat_models.base import ChatModel


class UsedMemoryJudge:
    """Says whether a selected memory was used in an answer or its reason.

    `votes` is how often the model is asked; see `judges.voting`. An instance keeps nothing between
    calls, so threads may share it.
    """

    def __init__(self, chat: ChatModel, votes: int = 1) -> None:
        self._ballot: Ballot[bool] = Ballot(chat, votes, YesOrNo, majority)
        self._prompt = read_prompt("used_memory.v1")

    def question(
        self, query: str, answer: str, reason: str, memory_text: str
    ) -> JudgeQuestion[bool]:
        """What is sent in a batch (`judges.voting.ask_all`). A blank memory is unused: no call."""
        if not memory_text.strip():
            return JudgeQuestion((), lambda answers: Judged(False, prompt=self._prompt.identity))
        material = {
            "USER'S QUESTION": query,
            "SELECTED MEMORY": memory_text,
            "ANSWER": answer,
            "REASON GIVEN FOR IT": reason,
        }
        return self._ballot.question(self._prompt, self._prompt.messages(material), is_yes)

    def __call__(self, query: str, answer: str, reason: str, memory_text: str) -> Verdict[bool]:
        """One verdict, True for used."""
        return ask_judge(self._ballot.chat, self.question(query, answer, reason, memory_text))

    def settings(self) -> Mapping[str, Any]:
        """All that can change a verdict."""
        return {**self._ballot.settings(), "prompts": [self._prompt.identity]}
