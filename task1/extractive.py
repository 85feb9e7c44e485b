"""Extraction without a model: user turns quoted, those that a retriever finds most about the user.

A floor, and a look at what a retriever alone can tell: each label of the benchmark's taxonomy is
worded as people speak about themselves, and used as a query over the dialogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memory_systems.base import Action, Operation, SystemContext
from memory_systems.stored import StoredSystem, at_least_one
from recallbed.corpus.records import Evidence, MemoryItem, Turn

# Labels that name what a memory is about; UNMAPPED, which names nothing, has no query.
QUERIES = {
    "Personal_Background/Identity": "my name is, I am a man or a woman, my age, years old",
    "Personal_Background/Education": "I study at school or university, my degree, exam, student",
    "Personal_Background/Occupation": "my job, I work as, my profession, my company, my career",
    "Personal_Background/Location": "I live in, I am from, my city, my country, moved to",
    "Personal_Background/Family": "my family, my parents, my children, my brother or sister",
    "Social_Relationships/Family": "my wife and children, my mother, my father and I get along",
    "Social_Relationships/Adversarial": "my enemy, my neighbour bothers me, we quarrel",
    "Social_Relationships/Friends": "my friend, my friends and I",
    "Social_Relationships/Partners": "my wife, my husband, my girlfriend, my boyfriend, my partner",
    "Social_Relationships/Colleagues": "my colleague, my boss, my coworkers, my team at work",
    "States_Experiences/Physical_State": "my health, I am ill, my pain, my body, my weight",
    "States_Experiences/Mental_State": "I feel sad, anxious, stressed, happy, worried, lonely",
    "States_Experiences/Past_Experience": "I used to, years ago I, I have been, it happened to me",
    "Possessions/Pet": "my pet, my dog, my cat",
    "Possessions/Car": "my car, I drive a",
    "Possessions/Important_Items": "I own, I bought, my phone, my computer, my house",
    "Preferences/Food": "my favourite food, I like to eat, drink, cook, my diet",
    "Preferences/Entertainment": "I love this film, series, game, story, character, fan of",
    "Preferences/Music": "my favourite music, song, band, singer, I listen to",
    "Preferences/Reading": "my favourite book, novel, author, I read",
    "Preferences/Sports": "I play football, running, training, gym, my favourite team",
    "Preferences/Shopping": "I want to buy, brand, price, shop",
    "Preferences/Travel_Mode": "I travel by train, plane, bicycle, my holiday trip",
    "Preferences/Interaction_Preferences": "answer me in short, write it in this style, always use",
    "Thoughts/Curiosity": "I wonder, I am curious how, why, I want to know about",
    "Thoughts/Opinions/Positive": "I think it is great, I agree, I admire",
    "Thoughts/Opinions/Negative": "I think it is bad, I disagree, I can't stand",
    "Thoughts/Goals/Long_Term": "my dream, my goal in life, one day I want to become",
    "Thoughts/Goals/Short_Term": "I need to finish this week, I am working on, my project",
    "Plans/Schedule": "tomorrow I have an appointment, meeting, at, o'clock, on Monday",
    "Plans/Commitments": "I promised, I have to, I agreed to",
    "Constraints_and_Boundaries/Disliked_Topics": "I hate, I don't like, don't talk about",
    "Constraints_and_Boundaries/Sensitive_Topics": "this is private, it is hard to talk about",
    "Constraints_and_Boundaries/Do_Not_Remember": "forget it, don't remember or save this",
}


class Extractive(StoredSystem):
    """Quotes the `top` user turns that the retriever finds most like a self-description.

    Every label's words are a query over the distinct user turns. A turn has the highest of its
    scores, and the label that gave it; of equal ones the first label and the earliest turn win.
    Two turns by default, since half of the public dev split's dialogues have no more memories.
    """

    def __init__(self, context: SystemContext, top: int = 2) -> None:
        super().__init__(context)
        at_least_one(top=top)
        self.top = top

    def settings(self) -> Mapping[str, Any]:
        """What is set, and what is asked."""
        return {**super().settings(), "queries": QUERIES}

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """An ADD for each turn chosen, in the order of the dialogue."""
        turns: dict[str, MemoryItem] = {}
        for number, turn in enumerate(dialogue):
            if turn.role == "user" and turn.text.strip():
                evidence = Evidence("", (number,), turn.text)
                item = MemoryItem(turn.text, type="direct", evidence=evidence)
                turns.setdefault(turn.text, item)
        best: dict[str, tuple[float, str]] = {}
        with self.attempt() as attempt:
            for label, query in QUERIES.items():
                for hit in attempt.search(query, list(turns.values()), len(turns)):
                    known = best.get(hit.item.text)
                    if known is None or hit.score > known[0]:
                        best[hit.item.text] = hit.score, label
        places = {text: place for place, text in enumerate(turns)}
        chosen = sorted(best, key=lambda text: (-best[text][0], places[text]))[: self.top]
        return self.apply(
            [
                Operation(Action.ADD, after=replace(turns[text], label=best[text][1]))
                for text in sorted(chosen, key=places.__getitem__)
            ]
        )
