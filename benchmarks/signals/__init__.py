"""Alarms as detectors: false alarms and delays, beside River's detectors. `python -m benchmarks.signals`."""
