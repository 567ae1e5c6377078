"""Files that are complete or absent."""

import pytest

from mesu.disk import replacing


def test_an_error_about_a_file_aside_names_the_file_asked_for(path):
    with pytest.raises(PermissionError) as caught, replacing(path) as aside:
        raise PermissionError(13, "Permission denied", str(aside))
    assert str(caught.value) == f"[Errno 13] Permission denied: {str(path)!r}"
