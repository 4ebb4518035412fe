"""The vendored libraries are those of their npm packages, with their licences."""

import base64
import io
import shutil
import tarfile
from hashlib import sha256, sha512
from pathlib import Path

import pytest

from bench import vendor
from samebits.reports.html import site

ROOT = Path(__file__).parents[2]
AXE = ROOT / "tests" / "browser" / "vendor"


@pytest.mark.parametrize("folder", [vendor.VENDOR, AXE], ids=["pages", "axe"])
def test_every_vendored_file_has_its_pinned_hash(folder):
    pinned = {
        name: digest
        for package in vendor.packages(folder)
        for name, (_, digest) in package.files.items()
    }
    present = {path.name for path in folder.iterdir()} - {vendor.MANIFEST}
    assert present == set(pinned)
    for name, digest in pinned.items():
        assert sha256((folder / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("folder", [vendor.VENDOR, AXE], ids=["pages", "axe"])
def test_every_package_is_pinned_with_its_licence(folder):
    for package in vendor.packages(folder):
        assert package.integrity.startswith("sha512-")
        assert package.licence in {"MIT", "BSD-3-Clause", "MPL-2.0"}
        assert any(name.endswith(".LICENSE") for name in package.files), package.name


def test_every_vendored_file_of_the_pages_is_loaded_or_a_licence():
    names = {path.name for path in vendor.VENDOR.iterdir()} - {vendor.MANIFEST}
    used = (*site.STYLES, *site.TABLE_SCRIPTS, *site.CHART_SCRIPTS, *site.LICENCES)
    assert names == {name.removeprefix("vendor/") for name in used if name.startswith("vendor/")}


def packed(content):
    """Return the bytes of an npm tarball with one file."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        info = tarfile.TarInfo("package/a.js")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def test_a_tarball_with_another_hash_is_refused(tmp_path, monkeypatch):
    good = packed(b"good")
    integrity = "sha512-" + base64.b64encode(sha512(good).digest()).decode()
    files = {"a.js": ("a.js", sha256(b"good").hexdigest())}
    package = vendor.Package("a", "1.0.0", integrity, "MIT", files)

    def npm(tarball):
        return lambda *_, cwd, **__: (cwd / "a-1.0.0.tgz").write_bytes(tarball)

    monkeypatch.setattr(vendor.subprocess, "run", npm(good))
    assert vendor.contents(package, tmp_path) == {"a.js": b"good"}
    monkeypatch.setattr(vendor.subprocess, "run", npm(packed(b"evil")))
    with pytest.raises(ValueError, match=r"a-1\.0\.0\.tgz has the hash"):
        vendor.contents(package, tmp_path)
    wrong = package._replace(files={"a.js": ("a.js", "0" * 64)})
    monkeypatch.setattr(vendor.subprocess, "run", npm(good))
    with pytest.raises(ValueError, match=r"a\.js has the hash"):
        vendor.contents(wrong, tmp_path)


def test_the_script_writes_no_file_if_one_is_refused(tmp_path, monkeypatch):
    shutil.copy(vendor.VENDOR / vendor.MANIFEST, tmp_path)
    monkeypatch.setattr(
        vendor.subprocess,
        "run",
        lambda command, cwd, **_: (cwd / (command[-1].replace("@", "-") + ".tgz")).write_bytes(
            packed(b"x")
        ),
    )
    with pytest.raises(ValueError, match="pins"):
        vendor.main([str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == [vendor.MANIFEST]
