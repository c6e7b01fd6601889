"""Plots as SVG, made while the site is built."""
