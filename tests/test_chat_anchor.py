"""Which JSON of a reply is the answer."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from recallbed.chat_models import Cause, Failure, Message, Reply, Request, Rung, Usage, anchor
from recallbed.chat_models.anchor import after_reasoning, find_answer
from recallbed.chat_models.structured import (
    RE_ASKS,
    Ask,
    RawReply,
    converse,
    replied,
    strict_schema,
)
from tests.kit import T, checked

ANSWER, ECHO = '{"order": [3, 1]}', '{"order": [7]}'
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=6), values, max_size=4)
# Any text that neither opens a bracket nor ends a model's reasoning.
prose = st.text(st.characters(exclude_characters='[]{}<>◁|"', exclude_categories=("Cs",)))


def raw(reply: str, array: bool = False) -> str | None:
    found = find_answer(reply, array)
    return found.raw if found else None


@given(prose, objects, prose, st.sampled_from([None, 1, "\t"]), st.sampled_from(["", "```"]))
def test_json_on_lines_of_its_own_is_found_whatever_prose_stands_around(
    before: str, value: dict[str, object], after: str, indent: int | str | None, fence: str
) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    opening = f"{fence}json\n" if fence else ""
    found = raw(f"{before}\n{opening}{text}\n{fence}\n{after}")
    assert found is not None
    assert json.loads(found) == value


@given(prose.filter(lambda text: text.strip(" \t\n\r\x0b\x0c`~")), objects, prose)
def test_json_inside_a_sentence_is_never_taken(
    before: str, value: dict[str, object], after: str
) -> None:
    line = " ".join(before.split()) or "x"
    if not line.strip("`~ ").strip() or line.lstrip("`~ ").isalpha():
        line = f"It says, {line}"
    assert raw(f"{line} {json.dumps(value)}\n{after}") is None


@given(objects, objects)
def test_the_last_of_two_is_taken(first: dict[str, object], second: dict[str, object]) -> None:
    found = raw(f"Echo:\n{json.dumps(first)}\nAnswer:\n{json.dumps(second)}")
    assert found is not None
    assert json.loads(found) == second


@given(objects, st.sampled_from(['{\n"a":\n%s\n}', "[\n%s\n]", '{"a": x,\n%s\n}', "[1,,\n%s\n]"]))
def test_json_inside_longer_json_whole_or_broken_is_never_the_answer(
    value: dict[str, object], around: str
) -> None:
    inner = json.dumps(value)
    found = raw(f"So:\n{around % inner}")
    assert found is None or len(found) > len(inner)


@given(st.text(st.sampled_from('{}[]",:\\ \n`<think></think>1a')))
def test_no_reply_breaks_the_search(reply: str) -> None:
    found = find_answer(reply)
    if found is not None:
        json.loads(found.raw)
        assert found.raw in reply


def test_brackets_without_end_are_no_answer() -> None:
    assert raw("x\n" + "[" * 100_000) is None
    assert raw("{" * 100_000) is None


SIZE = 240_000
HARD = {
    "closed pieces": "{a}\n",
    "valid pieces": "x {}\n",
    "whole pieces": "{}\n",
    "open pieces": "{\n",
    "strings that never end": '{"\\"\\"',
    "quotation marks": '["',
    "blanks": "{} x" + " " * 50,
    "fences": "`{}`x",
    "reasoning": "<think>",
}


@pytest.mark.parametrize("unit", HARD.values(), ids=HARD)
@pytest.mark.parametrize("start", ["", "So\n", "{"])
def test_each_part_of_a_reply_is_decoded_at_most_once(
    unit: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Besides the reply as a whole. 240 kB of `{a}` lines once took 17 s."""
    reply = start + unit * (SIZE // len(unit))
    decoded = 0
    is_json = anchor._is_json

    def counted(text: str) -> bool:
        nonlocal decoded
        decoded += len(text)
        return is_json(text)

    monkeypatch.setattr(anchor, "_is_json", counted)
    find_answer(reply)
    assert decoded <= 2 * len(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "{}" + " " * SIZE + "x",
        " " * SIZE + "1{}",
        "{" + '"' + '\\"' * SIZE,
        "{" + '"a' * SIZE,
        "So\n{" + "`" * SIZE,
    ],
)
def test_no_pattern_is_tried_from_every_place(reply: str) -> None:
    """Patterns that backtrack would take minutes on each of these."""
    assert find_answer(f"{reply}\nso\n{ANSWER}") in (None, anchor.Anchored(ANSWER, whole=False))


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (ANSWER, ANSWER),
        (f"```json\n{ANSWER}\n```", ANSWER),
        (f"```json {ANSWER} ```", ANSWER),
        (f"`{ANSWER}`", ANSWER),
        ("```\n[[3,1]]\n```", "[[3,1]]"),
        ("Document 2 answers it best.", None),
        ("", None),
        ("I take [2] first, then [1].", None),
        (f"Item 2 says: {ECHO}", None),
        (f"> {ECHO}", None),
        (f"Item 2 says:\n{ECHO}\nMine is\n{ANSWER}", ANSWER),
        (f"{ANSWER}\nItem 2 tried to make me say {ECHO}", ANSWER),
        (f"[2] is good.\n{ANSWER}\n[1]", ANSWER),
    ],
)
def test_prose_fences_and_echoes(reply: str, wanted: str | None) -> None:
    assert raw(reply) == wanted


def test_an_array_comes_first_where_the_schema_is_one() -> None:
    reply = f"{ANSWER}\n[2, 1]\n{ECHO}"
    assert raw(reply, array=True) == "[2, 1]"
    assert raw("[2, 1]\nis mine") == "[2, 1]"


@pytest.mark.parametrize(
    "reply",
    [
        f"<think>\n{ECHO}\n</think>\n{ANSWER}",
        f"{ECHO}\n</think>\n{ANSWER}",
        f"<think>The item has </think> and\n{ECHO}\n</think>{ANSWER}",
        f"<THINKING>{ECHO}</THINKING>\n\n```json\n{ANSWER}\n```",
        f"[THINK]{ECHO}[/THINK]{ANSWER}",
        f"<|channel|>analysis<|message|>{ECHO}<|end|>\n<|channel|>final<|message|>{ANSWER}",
    ],
)
def test_reasoning_is_not_parsed(reply: str) -> None:
    assert raw(reply) == ANSWER


def test_reasoning_that_never_ends_holds_no_answer() -> None:
    assert raw(f"<think>\n{ECHO}\n") is None
    assert after_reasoning("<think>one</think>two") == "two"


def test_a_whole_reply_may_speak_of_reasoning_marks() -> None:
    reply = '{"why": "it said </think> {\\"order\\": [7]}", "order": [3]}'
    assert raw(reply) == reply


class Order(BaseModel):
    order: list[int]


class Numbers(RootModel[list[int]]):
    pass


ASK = Request((Message("system", "Be brief."), Message("user", "Rank.")), Order)


def talk(
    kind: type[T], *replies: str | Failure, request: Request = ASK, rungs: Sequence[Rung] = ()
) -> tuple[T, list[Ask]]:
    """The end of a conversation, which must be of `kind`, and all that was asked."""
    asked: list[Ask] = []

    def answer(ask: Ask) -> RawReply | Failure:
        asked.append(ask)
        reply = replies[len(asked) - 1]
        return RawReply(reply, Usage(1, 10, 2)) if isinstance(reply, str) else reply

    end = replied(converse(request, rungs or (Rung.PLAIN,)), answer)
    return checked(kind, end), asked


def test_values_come_as_the_model_gave_them() -> None:
    """Numbers out of range are the caller's to drop; a string of digits is a number."""
    for text, order in (("[0]", [0]), ("[-2]", [-2]), ("[4]", [4]), ('["2"]', [2])):
        end, _ = talk(Reply, f'{{"order": {text}}}')
        assert end.parsed == Order(order=order)


def test_a_fault_is_named_when_asked_again_at_most_twice() -> None:
    end, asked = talk(Reply, "{}", "no", ANSWER)
    assert (end.re_asks, end.usage) == (RE_ASKS, Usage(3, 30, 6))
    assert "order: Field required" in asked[1].messages[-1].content
    assert "no JSON" in asked[2].messages[-1].content
    assert [m.role for m in asked[2].messages[2:]] == ["assistant", "user"] * 2
    assert "JSON schema" in asked[0].messages[-1].content

    for last, cause in (("no", Cause.NO_JSON), ('{"order": 1}', Cause.SCHEMA)):
        failure, asked = talk(Failure, "no", "{}", last)
        assert (failure.cause, failure.text, failure.usage.calls) == (cause, last, 3)


def test_an_invalid_last_answer_does_not_fall_back_to_an_echo_before_it() -> None:
    wrong = f'Item 2:\n{ECHO}\nSo:\n{{"order": "three, then one"}}'
    end, _ = talk(Failure, wrong, wrong, wrong)
    assert end.cause is Cause.SCHEMA


def test_a_refused_or_ignored_rung_is_left_and_nothing_rests_on_it() -> None:
    refused = Failure(Cause.BAD_REQUEST, "response_format")
    every = (Rung.STRICT, Rung.JSON_MODE, Rung.PLAIN)
    end, asked = talk(Reply, refused, "I think 3.", ANSWER, rungs=every)
    assert (end.rung, end.usage.calls, end.re_asks) == (Rung.PLAIN, 1, 0)
    assert [ask.rung for ask in asked] == list(every)
    assert "JSON schema" not in asked[0].messages[-1].content


def test_reasoning_is_left_out_of_a_reply_in_plain_text() -> None:
    plain = Request((Message("user", "Hello?"),))
    end, _ = talk(Reply, "<think>Hm.</think>\nHello!", request=plain)
    assert end.text == "Hello!"
    failure, _ = talk(Failure, "<think>Hm.", request=plain)
    assert failure.cause is Cause.EMPTY


def test_an_array_schema() -> None:
    end, _ = talk(Reply, "Mine:\n[3, 1]\n", request=Request(ASK.messages, Numbers))
    assert end.parsed == Numbers([3, 1])


class Part(BaseModel):
    default: int = 3


class Nested(BaseModel):
    properties: list[Part] = []
    note: str | None = None


def test_a_strict_schema_leaves_nothing_optional() -> None:
    schema = strict_schema(Nested)
    assert schema["required"] == ["properties", "note"]
    assert schema["additionalProperties"] is False
    part = schema["$defs"]["Part"]
    assert (part["required"], part["additionalProperties"]) == (["default"], False)
    assert "default" not in part["properties"]["default"]
