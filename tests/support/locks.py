"""Entries of samebits.lock, and the parts of it."""

from samebits.gate.lockfile import environment_key, machine_key
from samebits.records.ids import Variant
from samebits.records.lock import Environment, RecordedMachine, RecordedModel

PROBES = "9" * 16


def environment(**packages):
    versions = {"torch": "2.13.0", "transformers": "4.57.6"} | packages
    return Environment(python="3.11.7", packages=dict(sorted(versions.items())))


def machine(**changed):
    fields = {
        "fingerprint": "1" * 16,
        "platform": "Linux",
        "cpu": "a CPU",
        "cpu_capability": "AVX2",
    }
    return RecordedMachine(**(fields | changed))


def recorded(**changed):
    fields = {
        "path": "tiny",
        "variant": Variant(dtype="float32", attention="default"),
        "environment": environment_key(environment()),
        "machine": machine_key(machine()),
        "probes": PROBES,
        "signals": {"logits": {"short": "00000000000000aa"}},
    }
    return RecordedModel(**(fields | changed))
