"""Kept files are replaced atomically; a device is not, whoever runs samebits."""

import errno
import os
import stat

import pytest

from samebits_wire.atomic import replace, replacing


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_stays(tmp_path):
    device = tmp_path / "null"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with pytest.raises(OSError, match="a device is not replaced"):
        replace(device, "text")
    assert device.is_char_device()
    assert list(tmp_path.iterdir()) == [device]


def test_a_link_to_a_device_is_replaced(tmp_path):
    link = tmp_path / "kept.json"
    link.symlink_to("/dev/zero")
    replace(link, "text")
    assert not link.is_symlink()
    assert link.read_text() == "text"


@pytest.mark.parametrize(("number", "named"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_full_disk_names_the_file(tmp_path, number, named):
    path = tmp_path / "report.md"
    with pytest.raises(OSError) as caught, replacing(path):  # noqa: PT011  its fields are asserted
        raise OSError(number, os.strerror(number))
    assert caught.value.filename == (str(path) if named else None)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_names_the_file(tmp_path, monkeypatch):
    def refuse(dir, prefix, suffix):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), f"{dir}/{prefix}abc{suffix}")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(OSError) as caught:  # noqa: PT011  its fields are asserted
        replace(tmp_path / "matrix.yaml", "text")
    assert caught.value.filename == str(tmp_path / "matrix.yaml")
