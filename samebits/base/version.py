"""The version of samebits; it stands here, as a checkout runs without being installed."""

VERSION = "0.1.0"
