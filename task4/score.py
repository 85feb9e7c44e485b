"""`python -m task4.score RUN_OR_PREDICTIONS`: answers judged, and what can be said without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from judges.options import JudgeOptions, kept_if_judged
from recallbed.corpus.options import Data, Split
from recallbed.harness.app import App
from recallbed.harness.options import AsJson
from task4.options import Abilities

app = App()


@app.command(
    on_stop=kept_if_judged,
    examples=(
        "recallbed task4 score runs/a",
        "recallbed task4 score runs/a --judge-model openai:MODEL --votes 3",
    ),
)
def score(
    answers: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_PREDICTIONS",
            help="Run folder, or rows with benchmark_id and responses; .jsonl or .jsonl.gz.",
        ),
    ],
    *,
    data: Data = None,
    split: Split = "dev",
    ability: Abilities = (),
    judge_options: JudgeOptions,
    as_json: AsJson = False,
) -> None:
    """Score answers: verdicts, retrieval and over-personalization.

    Verdicts are by dimension; over-personalization is memory used where it must not be.
    Without --judge-model all that needs no judge is reported, and what is missing is listed.
    """
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.plan import print_plans
    from recallbed.harness.terminal import say, say_json
    from task4.scoring import gather
    from task4.scoring import score as score_material

    judge = judge_options.named
    material = gather(answers, data, split, ability)
    if judge is not None and judge.chat.dry_run:
        from task4.judging import plan_judging

        plans = plan_judging(judge, material.questions, material.answers.of)
        print_plans(plans, as_json=True)
        return
    result = score_material(material, judge)
    if as_json:
        say_json(canonical(result))
    else:
        say(*describe(result))


def describe(result: Mapping[str, Any]) -> Iterator[str]:
    """The result as lines of text."""
    if result["sample"]:
        yield "The embedded sample, not AlpsBench: its figures say that all works, and no more"
    yield f"{result['predictions']}: {result['lines']} lines, task 4 of split {result['split']}"
    for name, found in result["dimensions"].items():
        causes = ", ".join(
            f"{cause} {tally['count']}"
            for cause, tally in found["causes"].items()
            if tally["count"] and cause != "answered"
        )
        yield f"{NAMES[name]}: {found['answered']} of {found['asked']} answered" + (
            f" ({causes})" if causes else ""
        )
        if found["judge"] is not None:
            yield from _judged(found["judge"])
        if found["retrieval"] is not None:
            yield f"  {_retrieval(found['retrieval'])}"
    if result["retrieval"] is not None:
        yield f"all dimensions: {_retrieval(result['retrieval'])}"
    for name, found in result["over_personalization"].items():
        yield f"memory used where it must not be, {NAMES[name]}"
        for key in ("names_a_memory", "names_the_memory", "memory_in_answer"):
            yield f"  {key.replace('_', ' '):<24} {_share(found[key])}"
    for name, tally in result["others"].items():
        if tally["count"]:
            yield f"{OTHERS[name]}: {tally['count']} (lines {', '.join(map(str, tally['lines']))})"
            yield from (f"  {fault}" for fault in tally.get("faults", ()))
    for what in result["missing"]:
        yield f"missing: {what}"


NAMES = {
    "pa": "persona awareness",
    "pf_general": "preference following, general",
    "pf_interaction": "preference following, interaction",
    "vra": "virtual-reality awareness",
    "cf": "constraint following",
    "ei_en": "emotional intelligence, English",
    "ei_cn": "emotional intelligence, Chinese",
    "ei_other": "emotional intelligence, other languages",
}
OTHERS = {
    "unknown": "answers to no question of these",
    "unusable": "lines without benchmark_id or responses",
    "malformed": "malformed lines",
}


def _judged(judge: Mapping[str, Any]) -> Iterator[str]:
    scores = judge.get("grades") or {"score": judge["score"]}
    for name, found in scores.items():
        yield f"  {name:<24} {_share(None if found is None else {**found, 'n': judge['judged']})}"
    causes = ", ".join(f"{cause} {count}" for cause, count in judge["unjudged"].items())
    yield f"  judged {judge['judged']} of {judge['asked']}" + (
        f"; unjudged: {causes}" if causes else ""
    )
    if judge["disagreement"] is not None:
        yield f"  votes differ in {judge['disagreement']:.4f} of {judge['voted']}"


def _retrieval(found: Mapping[str, Any]) -> str:
    if found["gold_stored"] is None:
        return "no answers of a run"
    parts = [
        f"gold memory in the store {found['gold_stored']['mean']:.4f} of {found['questions']}",
        *(
            f"recall@{k} {share['mean']:.4f} of {share['n']} (chance {found['chance'][k]:.4f})"
            for k, share in found["recall"].items()
            if share is not None
        ),
    ]
    for key in ("nothing_stored", "not_searched"):
        if found[key]:
            parts.append(f"{key.replace('_', ' ')} {found[key]}")
    return "; ".join(parts)


def _share(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{found['mean']:.4f}  95 % [{found['low']:.4f}, {found['high']:.4f}]  n {found['n']}"


if __name__ == "__main__":
    app()
