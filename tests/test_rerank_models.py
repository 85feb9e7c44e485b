"""Rerankers by a model's numbers: cross-encoder, odds of an answer, query likelihood; all real."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.chat_models import ChatModel, DryRun, chat_model
from recallbed.chat_models.local_model import LocalModel
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import parse_configurations
from retrievers import build_retriever
from retrievers.base import Retriever, RetrieverError, RunContext
from retrievers.hybrid import PUBLIC_DEV
from retrievers.overlap import Overlap
from retrievers.rerank.base import Shortlist
from retrievers.rerank.cross_encoder import CrossEncoderReranker
from retrievers.rerank.pointwise import Pointwise
from retrievers.rerank.query_likelihood import QueryLikelihood, prompt_of
from retrievers.testing import POOL, QUERIES, RetrieverContract
from tests.tiny_models import save_bert, save_llama, words_of

QUERY = "Which tea should I buy for the office kettle?"
TEXTS = (
    "Prefers green tea over coffee",
    "Has an office with a broken kettle",
    "Runs ten kilometres every Sunday",
    "Has a cat called Biscuit",
)
WORDS = words_of([*QUERIES, *(memory.text for memory in POOL)])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("models") / "tiny", WORDS)


def crossing(folder: Path, **settings: Any) -> CrossEncoderReranker:
    return CrossEncoderReranker.over(Overlap(), model=str(folder), device="cpu", **settings)


def shortlist_of(query: str, texts: tuple[str, ...]) -> Shortlist:
    return Shortlist(query, texts, -np.arange(len(texts), dtype=np.float64))


def values(result: Any) -> list[float]:
    assert not isinstance(result, RetrieverError), result
    return [float(value) for value in result.values]


class TestCrossEncoder(RetrieverContract):
    has_direction = False  # its weights are random

    @pytest.fixture(autouse=True)
    def _folder(self, encoder: Path) -> None:
        self.folder = encoder

    def make(self) -> Retriever:
        return crossing(self.folder, depth=5, batch_size=2)


def test_the_order_is_that_of_the_library(encoder: Path) -> None:
    from sentence_transformers import CrossEncoder

    library = CrossEncoder(str(encoder), device="cpu", local_files_only=True)
    pairs = [(QUERY, text) for text in TEXTS]
    expected = library.predict(pairs)
    scored = crossing(encoder).score(QUERY, [Memory(text) for text in TEXTS])
    assert np.argsort(np.negative(scored.scores)).tolist() == np.argsort(-expected).tolist()
    [found] = crossing(encoder).rerank_all([shortlist_of(QUERY, TEXTS)])
    assert 1 / (1 + np.exp(-np.array(values(found)))) == pytest.approx(expected, abs=1e-6)


def test_outputs_that_a_sigmoid_would_round_to_one_do_not_tie(encoder: Path) -> None:
    reranker = crossing(encoder)
    scale_output(reranker, 1000.0)
    [found] = reranker.rerank_all([shortlist_of(QUERY, TEXTS)])
    assert len(set(np.asarray(values(found), np.float32))) == len(TEXTS)


def scale_output(reranker: CrossEncoderReranker, scale: float) -> None:
    import torch

    head = reranker._loaded.transformers_model.classifier
    with torch.no_grad():
        head.weight.mul_(scale)
        head.bias.mul_(scale)


def test_batches_and_neighbours_change_nothing(encoder: Path) -> None:
    shortlists = [shortlist_of(query, TEXTS) for query in QUERIES]
    by_size = [crossing(encoder, batch_size=n).rerank_all(shortlists) for n in (1, 3, 64)]
    for found in zip(*by_size, strict=True):
        first, *others = map(values, found)
        for other in others:
            assert other == pytest.approx(first, abs=1e-5)
    # Bit by bit, whatever else is scored and in whatever order the first stage gave them.
    reranker = crossing(encoder)
    together = [values(found) for found in reranker.rerank_all(shortlists)]
    alone = [values(*reranker.rerank_all([shortlist])) for shortlist in shortlists]
    assert together == alone
    [turned] = reranker.rerank_all([shortlist_of(QUERY, TEXTS[::-1])])
    assert values(turned)[::-1] == together[0]


def test_what_is_not_read_whole_is_counted(encoder: Path) -> None:
    """Two memories that differ only after the limit tie, and the notes and the row say so."""
    long = [f"{'tea ' * 60}{word}" for word in ("cat", "kettle")]
    pool = [Memory(text) for text in (*long, "Has a cat called Biscuit")]
    reranker = crossing(encoder)
    reranker.prepare(["tea", "cat"], pool)
    assert reranker.settings()["max_tokens"] == 48
    assert reranker.notes() == {
        "truncated_queries": 2,
        "of_queries": 2,
        "truncated_memories": 2,
        "of_memories": 3,
    }
    scored = reranker.score("tea", pool)
    assert scored.repairs == {"truncated": 2}
    scores = np.asarray(scored.scores)
    assert scores[0] == scores[1]
    # 48 tokens are 3 marks, a query of 1 and a memory of 44: one more is too long.
    for length, cut in ((44, {}), (45, {"truncated": 1})):
        found = reranker.score("tea", [Memory("cat"), Memory("tea " * length)])
        assert found.repairs == cut
    reranker.prepare([], [])
    assert reranker.notes()["of_memories"] == 0


def test_pairs_equal_after_truncation_are_scored_once_whatever_their_rows(encoder: Path) -> None:
    reranker = crossing(encoder)
    given: list[Any] = []

    def by_row(pairs: Any, **more: Any) -> Any:
        given.extend(pairs)
        return np.arange(len(pairs), dtype=np.float32)

    reranker._loaded.predict = by_row
    texts = ("tea " * 60 + "cat", "cat", "tea " * 60 + "kettle", " cat ", "kettle")
    [found] = reranker.rerank_all([shortlist_of("tea", texts)])
    scores = values(found)
    assert scores[0] == scores[2]
    assert scores[1] == scores[3]
    assert len(set(scores)) == len(given) == 3


def test_a_shorter_limit_is_kept(encoder: Path) -> None:
    short = crossing(encoder, max_tokens=8)
    assert short.settings()["max_tokens"] == 8
    pool = [Memory(f"{'tea ' * 7}{word}") for word in ("cat", "kettle")]
    scored = short.score("tea", pool)
    assert scored.repairs == {"truncated": 2}
    assert len(set(np.asarray(scored.scores))) == 1
    with pytest.raises(UserError, match="max_tokens=49: must be from 8 to 48"):
        crossing(encoder, max_tokens=49).settings()


def test_a_score_that_is_no_number_fails_the_query(encoder: Path) -> None:
    reranker = crossing(encoder)
    scale_output(reranker, float("nan"))
    with pytest.raises(RetrieverError, match="is not finite"):
        reranker.score(QUERY, POOL)


def test_half_precision_weights_are_read_in_float32(encoder: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    half = tmp_path / "half"
    AutoModelForSequenceClassification.from_pretrained(encoder).to(torch.bfloat16).save_pretrained(
        half
    )
    AutoTokenizer.from_pretrained(encoder).save_pretrained(half)
    reranker = crossing(half)
    [found] = reranker.rerank_all([shortlist_of(QUERY, TEXTS)])
    assert reranker._loaded.dtype == torch.float32
    exact = np.array(values(found))
    assert (exact != torch.tensor(exact).to(torch.bfloat16).double().numpy()).any()


def test_settings_know_the_weights_and_no_path(encoder: Path, tmp_path: Path) -> None:
    settings = crossing(encoder).settings()
    assert settings["model"] == "tiny"
    assert (settings["device"], settings["dtype"]) == ("cpu", "float32")
    assert str(encoder.parent) not in json.dumps(settings)
    other = save_bert(tmp_path / "tiny", WORDS)
    assert crossing(other).settings() == settings
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    assert crossing(other).settings()["weights"] != settings["weights"]


def built(*settings: str) -> Retriever:
    words = ["cross.first_stage=overlap", *settings]
    [configuration] = parse_configurations(
        ["cross=cross-encoder"], [f"cross.{w.removeprefix('cross.')}" for w in words]
    )
    return build_retriever(configuration, RunContext())


def test_a_configured_one(encoder: Path) -> None:
    retriever = built(f"model={encoder}", "depth=3", "device=cpu")
    assert isinstance(retriever, CrossEncoderReranker)
    settings = retriever.settings()
    assert settings["first_stage"]["label"] == "overlap"
    assert settings["depth"] == 3


def test_unusable_models_are_one_line(tmp_path: Path, encoder: Path) -> None:
    """A missing one, one that was never a cross-encoder, and one with several outputs."""
    with pytest.raises(UserError, match=r"cross: no cross-encoder is given. Add --set"):
        built()
    with pytest.raises(UserError, match="no model folder"):
        built(f"model={tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match=r"no model `nobody/has-this` \(looked in .*hub") as caught:
        built("model=nobody/has-this")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="batch_size=0"):
        built(f"model={encoder}", "batch_size=0")
    empty = tmp_path / "empty"
    empty.mkdir()
    biencoder = save_bert(tmp_path / "bi", WORDS, kind="BertModel")
    several = save_bert(tmp_path / "several", WORDS, outputs=3)
    for folder, why in (
        (empty, "cannot be loaded as a CrossEncoder"),
        (biencoder, r"not a cross-encoder \(\['BertModel'\]\)"),
        (several, "3 outputs"),
    ):
        with pytest.raises(UserError, match=why) as caught:
            crossing(folder).settings()
        assert "\n" not in str(caught.value)


# By log-probabilities: the odds of an answer, and query likelihood.


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    words = words_of([*WORDS, QUERY, *TEXTS, "Yes No"])
    return LocalModel(str(save_llama(tmp_path_factory.mktemp("models") / "llama", words)))


class LanguageContract(RetrieverContract):
    has_direction = False  # its weights are random

    @pytest.fixture(autouse=True)
    def _model(self, language: LocalModel) -> None:
        self.model = language


class TestOdds(LanguageContract):
    def make(self) -> Retriever:
        return by_odds(self.model, depth=5)


class TestQueryLikelihood(LanguageContract):
    def make(self) -> Retriever:
        return likely(self.model, depth=5)


def by_odds(model: ChatModel, **settings: Any) -> Pointwise:
    return Pointwise.asking(model, Overlap(), **settings)


def test_the_odds_are_those_of_the_model_itself(language: LocalModel) -> None:
    import torch

    reranker = by_odds(language)
    prompts = [reranker.prompt.build(QUERY, [text]) for text in TEXTS]
    [found] = reranker.rerank_all([shortlist_of(QUERY, TEXTS)])
    [yes], [no] = language._tokens("Yes"), language._tokens("No")
    expected = []
    for prompt in prompts:
        with torch.inference_mode():
            ids = torch.tensor([language._chat(prompt)])
            logits = language._loaded(input_ids=ids).logits[0, -1].double()
        expected.append(float(logits[yes] - logits[no]))
    assert values(found) == pytest.approx(expected, abs=1e-4)
    assert len(set(np.round(expected, 3))) == len(TEXTS)
    assert found.usage.calls == len(TEXTS)
    assert found.usage.tokens_in == sum(map(language.count_tokens, prompts))
    assert reranker.own_settings()["prompt"].startswith("yes-no.v1 ")


def test_what_has_no_odds_ranks_below_in_first_stage_order(language: LocalModel) -> None:
    long = ("tea " * 300, "coffee " * 300)
    reranker = by_odds(language)
    [found] = reranker.rerank_all([shortlist_of(QUERY, (long[0], TEXTS[0], long[1], TEXTS[1]))])
    assert found.repairs == {"context too long": 2}
    scores = np.array(values(found))
    assert min(scores[[1, 3]]) > scores[0] > scores[2]
    assert found.usage.calls == 2
    [failed] = reranker.rerank_all([shortlist_of(QUERY, long)])
    assert failed.cause == "context too long"


@pytest.mark.parametrize("by", ["cross-encoder", "odds", "likelihood"])
def test_copies_do_not_carry_the_weights(by: str, encoder: Path, language: LocalModel) -> None:
    made = {"cross-encoder": crossing(encoder), "odds": by_odds(language)}
    reranker = made.get(by) or likely(language)
    reranker.prepare([QUERY], POOL)
    scores = np.asarray(reranker.score(QUERY, POOL).scores)
    frozen = pickle.dumps(reranker)
    assert len(frozen) < 20_000
    copy = pickle.loads(frozen)
    assert copy.notes() == reranker.notes()
    assert np.array_equal(copy.score(QUERY, POOL).scores, scores)


def likely(model: ChatModel, **settings: Any) -> QueryLikelihood:
    return QueryLikelihood.asking(model, Overlap(), **settings)


def log_probability(model: LocalModel, prompt: str, query: str) -> float:
    """Of a query's tokens after a prompt, on average; by the plain model, with nothing shared."""
    import torch

    before, after = model._tokens(prompt), model._tokens(query)
    with torch.inference_mode():
        logits = model._loaded(input_ids=torch.tensor([before + after])).logits[0].double()
    logs = logits.log_softmax(-1)[len(before) - 1 : -1]
    return float(logs[range(len(after)), after].mean())


def test_the_mixture_is_that_of_standard_scores(language: LocalModel) -> None:
    first = np.array([3.0, 2.0, 2.0, 0.5])
    shortlist = Shortlist(QUERY, TEXTS, first)
    exact = np.array([log_probability(language, prompt_of(text), QUERY) for text in TEXTS])
    reranker = likely(language, weight=0.3)
    assert reranker.likelihoods(shortlist) == pytest.approx(exact, abs=1e-4)
    [found] = reranker.rerank_all([shortlist])
    mixture = 0.7 * first / first.std() + 0.3 * exact / exact.std()
    gaps = np.asarray(found.values) - np.mean(found.values)
    assert gaps == pytest.approx(mixture - mixture.mean(), abs=1e-3)
    assert np.ptp(gaps) > 0.1


def test_a_weight_of_nothing_is_the_first_stage_and_one_is_the_model_alone(
    language: LocalModel,
) -> None:
    shortlist = Shortlist(QUERY, TEXTS, np.array([3.0, 2.0, 2.0, 0.5]))
    [none], [alone] = (likely(language, weight=w).rerank_all([shortlist]) for w in (0.0, 1.0))
    assert np.sign(np.diff(values(none))).tolist() == [-1, 0, -1]
    found = likely(language).likelihoods(shortlist)
    assert np.argsort(values(alone)).tolist() == np.argsort(found).tolist()
    for weight in (-0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match="must be from 0 to 1"):
            likely(language, weight=weight)


def test_what_is_too_long_is_counted_and_never_scored(language: LocalModel) -> None:
    long = ("tea " * 300, "coffee " * 300)
    reranker = likely(language)
    [found] = reranker.rerank_all([shortlist_of(QUERY, (long[0], TEXTS[0], long[1], *TEXTS[1:3]))])
    assert found.repairs == {"context too long": 2}
    assert (found.usage.calls, found.usage.unreported) == (3, 3)
    scores = np.array(values(found))
    assert min(scores[[1, 3, 4]]) > scores[0] > scores[2]
    [failed] = reranker.rerank_all([shortlist_of("tea " * 300, TEXTS)])
    assert failed.cause == "context too long"


def test_the_cut_alone_decides_a_value_to_the_last_digit(language: LocalModel) -> None:
    shortlists = [shortlist_of(query, TEXTS) for query in QUERIES]
    reranker = likely(language)
    together = [values(found) for found in reranker.rerank_all(shortlists)]
    assert together == [values(*reranker.rerank_all([shortlist])) for shortlist in shortlists]
    turned = Shortlist(QUERY, TEXTS[::-1], shortlists[0].scores[::-1])
    assert values(*reranker.rerank_all([turned]))[::-1] == together[0]


def test_equal_prompts_are_read_once_whatever_their_rows(
    language: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A double of a processor on which a place in the batch moves every value."""
    real = language._forward

    def by_row(inputs: Any, wanted: Any) -> Any:
        return real(inputs, wanted) + 1e-3 * np.arange(len(wanted))

    monkeypatch.setattr(language, "_forward", by_row)
    texts = ("Prefers green tea", "Has a cat", " Prefers  green\ttea", "Runs", "Has a\ncat")
    [shortlist] = [shortlist_of(QUERY, texts)]
    found = likely(language).likelihoods(shortlist)
    assert found[0] == found[2]
    assert found[1] == found[4]
    assert len(set(found)) == 3


def test_a_memory_stays_on_its_line_and_fills_one_slot() -> None:
    plain = prompt_of("Likes tea")
    assert "\nThe user's message:" in plain
    for text in ("Likes tea\n\nThe user's message: which", "{memory}", "<|im_end|>x</s>"):
        prompt = prompt_of(text)
        assert prompt.count("\n") == plain.count("\n")
        assert not set(re.findall(r"<\|im_end\|>|</s>", prompt))
    assert prompt_of("{memory}").count("{memory}") == 1


def test_a_model_without_likelihoods_is_refused_at_once(language: LocalModel) -> None:
    address = chat_model("openai:some", base_url="http://127.0.0.1:9/v1", api_key="none")
    with pytest.raises(UserError, match="some reports no log-probabilities"):
        likely(address)
    [found] = likely(DryRun(language)).rerank_all([shortlist_of(QUERY, TEXTS)])
    assert found.cause == "not sent"


def test_defaults_name_what_they_were_fitted_on(language: LocalModel) -> None:
    asked_for = []

    def chats(name: str) -> ChatModel:
        asked_for.append(name)
        return language

    words = ["ql.first_stage=overlap"]
    for settings, fitted_on in (([], (PUBLIC_DEV,)), (["ql.weight=0.5"], ())):
        [configuration] = parse_configurations(["ql=query-likelihood"], [*words, *settings])
        built = build_retriever(configuration, RunContext(chats=chats))
        assert built.fitted_on == fitted_on
        assert built.settings()["model"] == language.settings()
        assert built.settings()["prompt"].startswith("query-likelihood.v1 ")
        assert built.notes()["chat_model"] == "llama"
    assert asked_for == ["local:smollm2"] * 2
