"""``samebits record`` and ``samebits verify``: bits that a project keeps in samebits.lock."""
