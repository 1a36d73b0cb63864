"""Sealed segments and packs: formats, writers and readers."""
