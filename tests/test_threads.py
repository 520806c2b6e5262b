from __future__ import annotations

from onmf import threads


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threads._controller().info() if pool["user_api"] == "blas"}


def test_small_products_get_one_thread_and_the_setting_comes_back():
    before = blas_threads()
    with threads.suited_to(1000):
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_large_products_keep_the_threads_they_have():
    before = blas_threads()
    with threads.suited_to(threads.LARGE):
        assert blas_threads() == before


def test_blocks_that_overlap_leave_the_setting_as_it_was():
    before = blas_threads()
    first, second = threads.suited_to(1000), threads.suited_to(1000)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before
