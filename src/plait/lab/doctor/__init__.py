"""Diagnosis of an installation: packages, backends and data, each with its remedy. No torch on import."""

from __future__ import annotations

from plait.lab.doctor.checks import Check, examine
from plait.lab.doctor.installed import Package, packages

__all__ = ["Check", "Package", "examine", "packages"]
