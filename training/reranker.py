"""`python -m training.reranker --retriever bm25 --retriever minilm --out FOLDER`: `learned`."""

from __future__ import annotations

from recallbed.harness.app import App
from retrievers.options import RetrieverOptions
from training.reranker_options import CombinationOptions

app = App()


@app.command(
    examples=(
        "recallbed train reranker --retriever bm25 --retriever minilm --out mixed",
        "recallbed train reranker --retriever bm25 --retriever use --folds 5 --out cv",
    )
)
def train_reranker(options: CombinationOptions, retrievers: RetrieverOptions) -> None:
    """Learn to combine retrievers and to order their best candidates.

    The retrievers are weighted so that the golds of the training pools come first; then the best
    candidates are ordered by features of their scores and texts. The result is a folder for
    --retriever learned. A retriever that was trained on these sessions takes part through its
    cross-validated models (`folds`): scores on its own training rows would be too good.
    """
    from recallbed.corpus.material import gather
    from recallbed.harness.terminal import say
    from recallbed.harness.text_table import print_tables
    from retrievers.features import feature_names
    from retrievers.learned import build_legs
    from retrievers.unseen import only_unseen
    from training.examples import read_training_data
    from training.measure import figures_table
    from training.options import known_figures, refuse_folder, whole_folder
    from training.pool_results import score_pools
    from training.reranker_run import RerankerTraining, baseline
    from training.teacher import read_teacher

    refuse_folder(options.out, options.overwrite)
    configurations = retrievers.configurations
    feature_names([one.label for one in configurations], options.features)
    figures = known_figures(options.figures, options.folds)
    data = read_training_data(options.data, options.split)
    material = gather(
        options.data, options.split, None, options.distractors, options.pool_seeds, None
    )
    run = retrievers.context(options.seed, material.data.bank)
    legs = build_legs(configurations, run)
    material = only_unseen(material, legs.items(), retrievers.unseen)
    teacher = read_teacher(options.teacher, material) if options.teacher else None
    with whole_folder(options.out, options.overwrite) as draft:
        training = RerankerTraining(options, configurations, data, material, draft)
        training.use(score_pools(material, legs), teacher)
        if options.folds is None:
            say(*training.train(figures))
            return
        lines, found = training.cross_validate(options.folds, baseline(run))
        print_tables([figures_table(found)])
        say(*lines)


if __name__ == "__main__":
    app()
