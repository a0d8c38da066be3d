"""Figures for papers as PNG, PDF or SVG."""
