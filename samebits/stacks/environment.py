"""What a probe may see of the environment: a short list, so that two machines agree.

Everything else is left out, because a variable such as ``ATEN_CPU_CAPABILITY`` or
``ONEDNN_MAX_CPU_ISA`` changes bits. What is passed on stands in the report. A run can set those few
by an argument of its own, as the tests do that show what another CPU changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "SYSTEMROOT",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
)
"""Where programs and caches are, and which devices there are."""

FOR_THE_HUB = (
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""How the hub is reached, and as whom; passed on to nothing that needs no hub."""

KERNELS = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
)
"""What makes torch, MKL and oneDNN take the kernels of another CPU; never read from the user's
environment."""

_SHOWN = (
    *KERNELS,
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "HF_HUB_OFFLINE",
)

FIXED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # glibc hands out blocks of its thread cache without filling them, see probes/samebits_probe/model/heap.py
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    # what a model prints, or reads from a file, does not follow from the user's language
    "PYTHONUTF8": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # kernels fetched from the hub would replace the release's own code
    "USE_HUB_KERNELS": "NO",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}
"""Set for every probe."""


def probe_environment(
    environ: Mapping[str, str],
    *,
    needs_hub: bool,
    modules_cache: str,
    kernels: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a stack's process.

    Without a hub model in the plan the hub is switched off, so that nothing can wait for a
    network, and no token goes where none is needed. ``modules_cache`` is where this stack copies remote code: shared between stacks,
    one could import the other's copy. ``kernels`` holds values for some of ``KERNELS``.
    """
    kernels = kernels or {}
    if unknown := sorted(kernels.keys() - set(KERNELS)):
        msg = f"{', '.join(unknown)} chooses no kernels: set some of {', '.join(KERNELS)}"
        raise ValueError(msg)
    names = PASSED_ON + (FOR_THE_HUB if needs_hub else ())
    passed = {name: environ[name] for name in names if name in environ}
    offline = {} if needs_hub else {"HF_HUB_OFFLINE": "1"}
    return passed | FIXED | offline | {"HF_MODULES_CACHE": modules_cache, **kernels}


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a report may say of an environment: no token, no folder of this machine."""
    names = (*FIXED, *_SHOWN)
    return {name: environment[name] for name in names if name in environment}
