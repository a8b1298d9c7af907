"""Addresses of a root, and names that may come from a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import UserError
from storage.roots import inside, root_folder


@pytest.mark.parametrize("text", ["\0", "gs://b/p", "s3://", "s3://B_/x", "s3://b/../x", "s3://key:secret@bucket/x"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError) as error:
        root_folder(text)
    assert "secret" not in str(error.value)


@given(st.text(max_size=40))
def test_no_name_from_the_bucket_leaves_the_root(name: str) -> None:
    root = Path("/some/root")
    try:
        found = inside(name)
    except UserError:
        return
    assert (root / found).resolve().is_relative_to(root)
