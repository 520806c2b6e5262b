"""The data of the paper's experiments, and the measures that they are judged by."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse

from onmf.data import examples
from onmf.data.examples import Planted, Texts
from onmf.topics import coherence, leading
from reproduction.faces import FreshNoise, Subject, brightness_in_shadow, contaminated, halved, quality, stand_ins
from reproduction.synthetic import NAMES, Data, PlantedSource
from reproduction.topics import NAMED, cluster, documents, topics_of
from reproduction.trial import Copies, Trial

TEXTS = Texts(
    scipy.sparse.csr_array(np.array([[3.0, 1, 0, 0], [2, 0, 1, 0], [0, 0, 4, 2], [0, 1, 2, 5]])),
    ["goal", "team", "vote", "law"],
    np.array([0, 0, 1, 1]),
    ["sport", "politics"],
)


def test_planted_samples_are_the_same_in_every_pass_and_for_every_size_of_batch(rng):
    source = PlantedSource(Planted.draw(7, 3, "gamma", rng), 900, seed=4)
    once = np.concatenate([batch for _, batch in source.batches(200)])
    assert once.shape == (900, 7)
    for size in (400, 150):
        np.testing.assert_array_equal(once, np.concatenate([batch for _, batch in source.batches(size)]))
    assert len(np.unique(once[:, 0])) == 900  # no block repeats another


@pytest.mark.parametrize("divergence", NAMES)
def test_the_synthetic_data_have_the_papers_ratio_of_signal_to_noise(divergence):
    data = Data.draw(divergence, 400, 60, K=3, judged=300, seed=1)
    expected = 30.0 if divergence in ("is", "kl", "squared_l2") else 5.3  # outliers: no ratio is given in the paper
    assert data.snr == pytest.approx(expected, abs=1.0)
    assert Trial(data, "ol", 0).task.gathered().max() <= 4000


def test_the_judges_samples_are_learnt_from_or_not():
    data = Data.draw("kl", 400, 10, K=3, judged=100, seed=1)
    X = Trial(data, "ol", 0).task.gathered()
    np.testing.assert_allclose(data.train.V * data.train.units[:, None], X[:100], rtol=1e-12)
    others = data.held_out.V * data.held_out.units[:, None]
    assert not (others[:, None] == X).all(axis=2).any()


def test_documents_follow_the_papers_steps():
    found = documents(examples.docstrings(), 50, 4000, 600, 40, seed=3)
    V, order, n = found.source.X, found.source.order, len(found.texts.labels)
    assert found.snr == pytest.approx(30, abs=0.3)
    assert V.shape == (n, 50)
    assert len(found.texts.words) == 50
    assert n - len(found.learnt) == pytest.approx(0.1 * n, abs=1)
    assert found.copies == round(4000 / len(found.learnt))
    expected = np.zeros(n)
    expected[found.learnt] = found.copies
    np.testing.assert_array_equal(np.bincount(order, minlength=n), expected)  # the others are held out
    assert (np.diff(order) != 0).mean() > 0.9  # in random order
    assert (V.sum(axis=1) > 0).all()
    np.testing.assert_array_equal(V.data, np.round(V.data))  # Poisson: counts
    assert V.has_sorted_indices
    judged = {tuple(row) for row in (found.held_out.V.toarray() * found.held_out.units[:, None]).round()}
    others = np.setdiff1d(np.arange(n), found.learnt)
    assert judged == {tuple(row) for row in V[others[:40]].toarray()}


def test_documents_keep_words_and_counts_together():
    found = documents(TEXTS, 3, 8, 100, 4, seed=0)
    assert len(found.texts.words) == 3
    columns = [TEXTS.words.index(word) for word in found.texts.words]
    np.testing.assert_array_equal(found.texts.counts.toarray(), TEXTS.counts.toarray()[:, columns])
    assert not (found.source.X.toarray()[found.texts.counts.toarray() == 0]).any()


def test_copies_are_read_in_their_order():
    X = np.arange(6.0).reshape(3, 2)
    source = Copies(X, np.array([2, 0, 0, 1, 2]))
    batches = list(source.batches(2))
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in batches]), np.arange(5))
    np.testing.assert_array_equal(np.concatenate([batch for _, batch in batches]), X[[2, 0, 0, 1, 2]])


def test_the_standard_librarys_texts_have_five_packages():
    found = examples.docstrings()
    assert set(found.labels) == set(range(5))
    assert found.counts.shape == (len(found.labels), len(found.words))
    assert len(found.labels) > 400


def test_without_the_librarys_sources_the_stand_in_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(examples.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(FileNotFoundError, match="full installation"):
        examples.docstrings()


def test_three_tenths_of_the_pixels_are_noisy(rng):
    images = np.full((40, 100), 128.0)
    noisy = contaminated(images, rng)
    hit = noisy != images
    assert (hit.sum(axis=1) == 30).all()
    assert noisy.min() == 0
    assert noisy.max() == 255
    added = noisy[hit & (noisy > 0) & (noisy < 255)] - 128.0
    assert abs(added.mean()) < 5  # symmetric
    # Of U(-255, 255) added to 128, a quarter falls below 0 and nearly as much beyond 255.
    assert (noisy[hit] == 0).mean() == pytest.approx(0.25, abs=0.04)


def test_fresh_noise_differs_between_copies_and_not_between_passes():
    images = np.full((2, 50), 100.0)
    source = FreshNoise(images, np.array([0, 1, 0, 1]), seed=5)
    first = np.concatenate([batch for _, batch in source.batches(4)])
    again = np.concatenate([batch for _, batch in source.batches(3)])
    np.testing.assert_array_equal(first, again)
    assert (first[0] != first[2]).any()


def test_shadows_are_where_good_light_shows_more():
    images = np.full((64, 4), 200.0)
    images[0, :2] = 20.0
    images[:, 3] = 10.0  # dark in every light: no shadow
    subject = Subject("one", images)
    expected = np.zeros((64, 4), dtype=bool)
    expected[0, :2] = True
    np.testing.assert_array_equal(subject.shadows(), expected)
    assert brightness_in_shadow(images, subject) == pytest.approx(0.1)
    assert brightness_in_shadow(np.full_like(images, 200.0), subject) == pytest.approx(1.0)
    assert math.isnan(brightness_in_shadow(images[1:], Subject("no shadow", images[1:])))


def test_stand_in_subjects_have_light_and_shadow(rng):
    subjects = stand_ins(3, rng)
    assert [subject.images.shape for subject in subjects] == [(64, 1024)] * 3
    assert all(subject.shadows().mean() > 0.02 for subject in subjects)
    assert halved(subjects[0]).side == 16
    np.testing.assert_allclose(halved(subjects[0]).images.mean(axis=1), subjects[0].images.mean(axis=1))


def test_psnr_of_known_errors():
    clean = np.full((64, 4), 100.0)
    clean[0, 1:] = 10.0  # in shadow
    subject = Subject("one", clean)
    assert quality(clean + 25.5, subject)["psnr"] == pytest.approx(20.0)
    assert quality(clean, subject)["psnr"] == math.inf
    wrong_in_shadow = clean.copy()
    wrong_in_shadow[0, 1:] += 9
    assert quality(wrong_in_shadow, subject)["psnr"] < math.inf
    assert quality(wrong_in_shadow, subject)["psnr outside shadows"] == math.inf


def test_keywords_are_the_largest_weights():
    W = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.3]])
    assert leading(W, 2) == [[1, 2], [0, 2]]


def test_a_perfect_clustering_is_found_whatever_the_topics_order():
    labels = np.array([0, 0, 1, 1, 2, 2])
    masses = np.eye(3)[[2, 2, 0, 0, 1, 1]]
    found = cluster(masses, labels, 3)
    assert found["accuracy"] == 1
    assert found["nmi"] == pytest.approx(1)
    assert found["documents"] == [[0, 2, 0], [0, 0, 2], [2, 0, 0]]


def test_a_topic_belongs_to_the_category_that_most_of_its_documents_have():
    found = cluster(np.array([[1.0, 0, 0]] * 4), np.array([0, 0, 0, 1]), 2)
    assert found["accuracy"] == 0.75
    assert topics_of(found["documents"], ["a", "b"], {"A": ("a",), "B": ("b",)}) == {"A": 0}


def test_general_categories_are_those_that_the_paper_names():
    labels = ["alt.atheism", "rec.autos", "rec.sport.hockey", "sci.space", "soc.religion.christian", "misc.forsale"]
    documents = [[9, 0, 0, 0, 8, 0], [0, 0, 0, 0, 20, 0], [0, 5, 4, 0, 0, 0], [0, 0, 0, 3, 0, 2]]
    found = topics_of(documents, labels, NAMED["20 Newsgroups"])
    assert found == {"Religion": 1, "Space": 3}  # the third topic is of cars, none of sales


def test_coherence_of_words_that_always_never_or_independently_meet():
    counts = scipy.sparse.csr_array(np.array([[1, 1, 0, 1], [2, 1, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1]]))
    assert coherence(counts, [[0, 1]]) == pytest.approx(1)
    assert coherence(counts, [[0, 2]]) == -1
    assert coherence(counts, [[0, 3]]) == pytest.approx(0)
    assert coherence(counts, [[0, 1], [0, 2]]) == pytest.approx([1, -1])
