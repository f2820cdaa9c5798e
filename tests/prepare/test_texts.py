"""Columns of texts: which are read word by word, what their numbers are, and that Spark and Arrow agree."""

from __future__ import annotations

import re

import numpy as np
import pandas.testing as pdt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from sparkgpu.core.errors import ConfigError, DataError
from sparkgpu.prepare.encoding import Encoder
from sparkgpu.prepare.texts import load_texts

ROWS = 600
GOOD, BAD = ("lovely", "Große", "fits"), ("poor", "ΣΟΦΟΣ", "İzmir")
FILLING = [f"word{place}" for place in range(40)]


def reviews(label_N: np.ndarray | None = None) -> dict[str, list]:
    drawn = np.random.default_rng(3)
    is_good_N = drawn.random(ROWS) < 0.5
    texts = []
    for is_good in is_good_N:
        words = [*drawn.choice(GOOD if is_good else BAD, 1), *drawn.choice(FILLING, 6)]
        texts.append(f"{', '.join(drawn.permutation(words))}! It's n° {drawn.integers(9)}")
    texts[5], texts[6], texts[7] = None, "", "?!"
    label_N = is_good_N if label_N is None else label_N
    return {"review": texts, "size": drawn.random(ROWS).tolist(), "y": label_N.tolist()}


def test_long_texts_that_mostly_differ_become_a_estimate_and_topics(prepare) -> None:
    found = prepare(reviews(), "y")
    assert list(found.kinds)[:3] == ["review (estimate)", "review (topic 1)", "review (topic 2)"]
    assert len(found.kinds) == 1 + 32 + 1 and not found.dropped
    (note,) = found.schema.notes
    assert note == (
        "'review' is read as text, word by word: 33 features; "
        'data.roles = {"review" = "ignore"} leaves it out'
    )
    table = found.stored()
    test = table[table.split == "test"]
    assert test.review_estimate[test.label == 1].mean() > test.review_estimate[test.label == 0].mean() + 0.5


def test_a_short_text_is_read_word_by_word_only_if_asked(prepare) -> None:
    names = [f"{name} {place}" for place, name in enumerate(["Ann", "Bo"] * (ROWS // 2))]
    rows = {**reviews(), "name": names}
    assert prepare(rows, "y").dropped["name"].startswith("id-like or free text")
    assert "name (estimate)" in prepare(rows, "y", {"data.roles": {"name": "text"}}).kinds


def test_texts_without_a_common_word_are_left_out(prepare) -> None:
    rows = {**reviews(), "id": [f"a{place} b{place} c{place} d{place}" for place in range(ROWS)]}
    assert prepare(rows, "y").dropped == {
        "id": "id-like: hardly a word is in two of its texts in the training rows"
    }


def test_the_topics_are_those_of_scikit_learns_weights(prepare) -> None:
    rows = reviews()
    found = prepare(rows, "y")
    (fitted,) = load_texts(found.paths.table, found.schema.features).values()
    table = found.stored()
    texts = [text or "" for text in rows["review"]]
    words = re.compile(r"[\w\u0307]+").findall
    vectorizer = TfidfVectorizer(tokenizer=words, token_pattern=None, min_df=2)
    vectorizer.fit([texts[row] for row in table.row_id[table.split == "train"]])
    place_V = [vectorizer.vocabulary_[word] for word in fitted.words.to_pylist()]
    assert len(place_V) == len(vectorizer.vocabulary_)
    expected_NF = vectorizer.transform(texts)[:, place_V] @ fitted.all_VF
    topics = [feature.name for feature in fitted.features if feature.reading == "topic"]
    np.testing.assert_allclose(table[topics], expected_NF[:, 1:], atol=1e-6)
    held_out = (table.split != "train").to_numpy()
    np.testing.assert_allclose(table.review_estimate[held_out], expected_NF[held_out, 0], atol=1e-6)


def test_a_training_row_does_not_see_its_own_label(prepare) -> None:
    """Under a random label, a estimate that saw it would be close to it."""
    rows = reviews(np.random.default_rng(4).random(ROWS) < 0.5)
    rows["review"] = [f"{text} u{place // 2}" for place, text in enumerate(rows["review"])]
    table = prepare(rows, "y").stored()
    train = table[table.split == "train"]
    assert abs(train.review_estimate.corr(train.label)) < 0.15


def test_each_of_several_classes_has_a_estimate_and_many_have_none(prepare) -> None:
    label_N = np.arange(ROWS) % 3
    assert "review (estimate of 2)" in prepare(reviews(label_N), "y").kinds
    many = prepare(reviews(np.arange(ROWS) % 25), "y", {"data.task": "multiclass"})
    assert next(iter(many.kinds)) == "review (topic 1)"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "ways"),
    [
        ({"split.kind": "time", "split.column": "size"}, ("spark",)),
        pytest.param({"split.folds": 3}, ("spark", "held"), marks=pytest.mark.slow),
    ],
)
def test_spark_and_arrow_read_texts_alike_and_the_saved_pipeline_needs_no_sparkgpu(
    prepare, spark, tmp_path, options, ways
) -> None:
    path = tmp_path / "t.parquet"
    rows = reviews()
    rows["title"] = [" ".join((text or "").split()[-4:]) for text in rows["review"]]
    rows["tags"] = [[*text.split()[:3], None] if text else None for text in rows["review"]]
    pq.write_table(pa.table(rows), path)
    options = {**options, "data.roles": {"title": "text"}}
    by = {way: prepare(path, "y", options, by=way) for way in ("arrow", *ways)}
    stored = {way: found.stored() for way, found in by.items()}
    for way in ways:
        assert by[way].schema == by["arrow"].schema
        for name in stored["arrow"]:
            if name == "split":
                assert (stored[way][name] == stored["arrow"][name]).all()
            else:
                np.testing.assert_array_equal(stored[way][name], stored["arrow"][name], err_msg=name)
    names = [feature.name for feature in by["spark"].schema.features]
    held_out = (stored["spark"].split != "train").to_numpy()
    vectors = by["spark"].vectors(spark.read.parquet(str(path)))
    np.testing.assert_array_equal(vectors[held_out], stored["spark"][names][held_out])
    assert abs(vectors[~held_out, 0] - stored["spark"].review_estimate[~held_out]).max() > 0.01


def test_new_rows_become_what_the_rows_of_the_table_became(prepare) -> None:
    rows = reviews()
    found = prepare(rows, "y")
    encoder = Encoder(found.schema, load_texts(found.paths.table, found.schema.features))
    assert encoder.columns == ("review", "size")
    table = found.stored()
    test = table[table.split == "test"].row_id.to_numpy()
    new = encoder.rows(pa.table(rows).take(pa.array(test)))
    names = [feature.name for feature in found.schema.numeric]
    np.testing.assert_array_equal(new.numeric_NF, table.loc[test, names].to_numpy(np.float32))
    none = encoder.rows(pa.table({"review": pa.nulls(2), "size": [1.0, 2.0]}))
    assert not none.numeric_NF[:, :-1].any()
    with pytest.raises(DataError, match=r"column 'review' is of type list<.*>; the model needs text there"):
        encoder.rows(pa.table({"review": [[1], [2]], "size": [1.0, 2.0]}))


def test_a_list_of_words_is_read_as_the_text_of_its_words(prepare) -> None:
    rows = reviews()
    split = [None if text is None else [*re.findall(r"\w+", text), None] for text in rows["review"]]
    lists = prepare({**rows, "review": split}, "y").stored()
    pdt.assert_frame_equal(lists, prepare(rows, "y", {"data.roles": {"review": "text"}}).stored())


def test_a_missing_file_is_named(prepare) -> None:
    found = prepare(reviews(), "y")
    (file,) = (found.paths.table / "texts").iterdir()
    file.unlink()
    with pytest.raises(ConfigError, match=r"review_estimate\.parquet: it is damaged or gone"):
        load_texts(found.paths.table, found.schema.features)


def test_a_withheld_text_is_no_feature_and_a_text_has_no_direction(prepare) -> None:
    found = prepare(reviews(), "y", {"rules.without": ["review"]})
    assert list(found.kinds) == ["size"] and set(found.dropped) == {"review"} and not found.schema.beside
    with pytest.raises(DataError, match="'review' is a text, which has no direction"):
        prepare(reviews(), "y", {"rules.monotone": {"review": "increasing"}})
