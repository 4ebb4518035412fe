"""Kept files are replaced atomically; a device is not, whoever runs samebits."""

import os
import stat

import pytest

from samebits_wire.atomic import replace


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
