"""Wheels of a few bytes, folders of them that uv resolves from, and locks as uv prints them."""

import base64
import contextlib
import functools
import hashlib
import http.server
import json
import threading
import zipfile


def wheel(folder, name, version="1.0", code="x = 1\n", requires=(), record=None):
    """Write a wheel with one module and return its path; ``record`` replaces a hash in its RECORD."""
    folder.mkdir(parents=True, exist_ok=True)
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        f"{module}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = "".join(f"{path},sha256={record or _hash(text)},\n" for path, text in files.items())
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_in_it, text in {**files, f"{info}/RECORD": f"{lines}{info}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(name_in_it, (2020, 1, 1, 0, 0, 0)), text)
    return path


@contextlib.contextmanager
def index(folder, *, hashes=True):
    """Serve the wheels of a folder as a package index, and yield its address without http://."""
    for path in folder.glob("*.whl"):
        page = folder / "simple" / path.name.partition("-")[0] / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        link = f"#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}" if hashes else ""
        page.write_text(f'<a href="../../{path.name}{link}">{path.name}</a>')
    handler = functools.partial(_Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}/simple"
        server.shutdown()


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def _hash(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def locked(pins):
    """Return the lock of packages of an index, with made-up hashes."""
    return "".join(f"{pin} --hash=sha256:{digest(pin)}  # from https://i\n" for pin in pins.split())


def pylock(lock):
    """Return a lock as uv prints it; the packages are those of the lines of ``locked``."""
    packages = []
    for line in lock.splitlines():
        name, _, version = line.split()[0].partition("==")
        if "@" in line:
            source = json.dumps(line.partition("@")[2].strip())
            packages.append(f'name = "{name}"\narchive = {{ path = {source} }}\n')
            continue
        file = f'{{ url = "https://i/{name}.whl", hashes = {{ sha256 = "{digest(line.split()[0])}" }} }}'
        packages.append(f'name = "{name}"\nversion = "{version}"\nwheels = [{file}]\n')
    return 'lock-version = "1.0"\n' + "".join(f"\n[[packages]]\n{text}" for text in packages)
