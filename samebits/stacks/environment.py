"""Environment variables of the probes: a short list, so that two machines agree.

All other variables are left out, because a variable such as ``ATEN_CPU_CAPABILITY`` or
``ONEDNN_MAX_CPU_ISA`` changes bits. The report shows what is passed on. A run can set the variables
of ``KERNELS`` by an argument, which the tests use to show what another CPU changes.
"""

from __future__ import annotations

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
"""Variables for locations of programs and caches, and for devices."""

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
"""Variables for access to the hub; passed on only if the plan has a hub model."""

KERNELS = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
)
"""Variables that make torch, MKL and oneDNN use the kernels of another CPU; never read from the
user's environment."""

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
    # a job with several threads has them on a busy machine, too
    "MKL_DYNAMIC": "FALSE",
    "OMP_DYNAMIC": "FALSE",
    # where threads wait by spinning, a busy machine takes ten times as long
    "OMP_WAIT_POLICY": "PASSIVE",
    # glibc hands out blocks of its thread cache without filling them
    # (see probes/samebits_probe/model/heap.py)
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    # what a model prints, or reads from a file, must not depend on the user's locale
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
    """Return the environment variables of a stack's process.

    Without a hub model in the plan the hub is switched off. Then no job waits for the network, and
    no process gets a token that it does not need. ``modules_cache`` is the folder to which this
    stack copies remote code; stacks with a shared folder could import each other's copy.
    ``kernels`` holds values for some of ``KERNELS``.
    """
    kernels = kernels or {}
    if unknown := sorted(kernels.keys() - set(KERNELS)):
        raise ValueError(
            f"{', '.join(unknown)} does not select kernels; "
            f"the variables that do are {', '.join(KERNELS)}"
        )
    names = PASSED_ON + (FOR_THE_HUB if needs_hub else ())
    passed = {name: environ[name] for name in names if name in environ}
    offline = {} if needs_hub else {"HF_HUB_OFFLINE": "1"}
    return passed | FIXED | offline | {"HF_MODULES_CACHE": modules_cache, **kernels}


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a report may show: no token, no folder of this machine."""
    names = (*FIXED, *_SHOWN)
    return {name: environment[name] for name in names if name in environment}
